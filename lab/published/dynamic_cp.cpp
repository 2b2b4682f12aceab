#include "published/dynamic_cp.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "published/lane_reference.h"

namespace sluice::published {
namespace {

using cost::Wide;

struct Group {
  int lanes = 1;
  Wide squares = 0;  // sum over its sequences
  Wide cost = 0;     // squares ÷ lanes
  std::vector<int> sequences;
};

class Rounds {
 public:
  Rounds(const LaneReference& reference, const DynamicCpOptions& options)
      : reference_(reference), options_(options), left_(reference.longest_first()) {}

  std::vector<strategy::PipelineMicroBatch> run() {
    while (!left_.empty()) {
      fill();
      trim();
      widen();
      append();
    }
    return std::move(micro_batches_);
  }

 private:
  int lanes_of(int sequence) const {
    const int fewest = reference_.fewest_lanes(reference_.length(sequence));
    int lanes = 1;
    while (lanes < fewest) lanes *= 2;
    return lanes;
  }

  void fill() {
    groups_.clear();
    free_lanes_ = reference_.lanes();
    std::vector<int> later;
    const int most = lanes_of(left_.front());
    bool closed = false;
    for (const int sequence : left_) {
      const int lanes = lanes_of(sequence);
      if (closed || !place(sequence, lanes)) {
        later.push_back(sequence);
      } else {
        closed = lanes < most && free_lanes_ == 0 && balanced();
      }
    }
    left_ = std::move(later);
  }

  bool place(int sequence, int lanes) {
    size_t least = groups_.size();
    if (lanes <= free_lanes_) {
      free_lanes_ -= lanes;
      groups_.push_back({.lanes = lanes, .sequences = {}});
    } else {
      for (size_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g].lanes != lanes) continue;
        if (least == groups_.size() || groups_[g].cost < groups_[least].cost) least = g;
      }
      if (least == groups_.size()) return false;
    }
    add(groups_[least], sequence, 1);
    groups_[least].sequences.push_back(sequence);
    return true;
  }

  void add(Group& group, int sequence, int times) const {
    group.squares += Wide{reference_.length(sequence)} * reference_.length(sequence) * times;
    group.cost = group.squares / group.lanes;
  }

  std::pair<Wide, Wide> spread() const {  // minimum and maximum
    Wide least = groups_.front().cost;
    Wide most = least;
    for (const Group& group : groups_) {
      least = std::min(least, group.cost);
      most = std::max(most, group.cost);
    }
    return {least, most};
  }
  bool balanced() const {
    const auto [least, most] = spread();
    return (most - least) * 100 <= most * options_.slack_percent;
  }

  // Takes sequences from the costliest group while no lane is free and that narrows the spread of costs.
  void trim() {
    while (free_lanes_ == 0 && !balanced()) {
      Group& costliest = *std::max_element(groups_.begin(), groups_.end(),
                                           [](const Group& a, const Group& b) { return a.cost < b.cost; });
      if (costliest.sequences.size() < 2) return;
      const auto [least, most] = spread();
      const int sequence = costliest.sequences.back();
      add(costliest, sequence, -1);
      const auto [least_after, most_after] = spread();
      if (most_after - least_after >= most - least) {
        add(costliest, sequence, 1);
        return;
      }
      costliest.sequences.pop_back();
      put_back(sequence);
    }
  }
  void put_back(int sequence) {
    const auto at = std::lower_bound(left_.begin(), left_.end(), sequence, [&](int a, int b) {
      return std::pair(-reference_.length(a), a) < std::pair(-reference_.length(b), b);
    });
    left_.insert(at, sequence);
  }

  // Every lane of a doubled group keeps two chunks of each of its sequences.
  bool can_double(const Group& group) const {
    return group.lanes <= free_lanes_ && reference_.length(group.sequences.back()) >= 4 * group.lanes;
  }
  void widen() {
    while (free_lanes_ > 0) {
      Group* smallest = nullptr;
      for (Group& group : groups_) {
        if (!can_double(group)) continue;
        const bool smaller = smallest == nullptr || std::pair(group.lanes, -group.cost) <
                                                        std::pair(smallest->lanes, -smallest->cost);
        if (smaller) smallest = &group;
      }
      if (smallest == nullptr) return;
      free_lanes_ -= smallest->lanes;
      smallest->lanes *= 2;
      smallest->cost = smallest->squares / smallest->lanes;
    }
  }

  void append() {
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const Group& a, const Group& b) { return a.lanes > b.lanes; });
    int first_lane = 0;
    for (const Group& group : groups_) {
      int64_t left_tokens = 0;
      strategy::PipelineMicroBatch micro_batch{
          .first_lane = first_lane, .lanes = group.lanes, .sequences = {}};
      for (const int sequence : group.sequences) {
        const int64_t tokens =
            plan::SchemeCost::fullest_share(reference_.length(sequence), group.lanes).tokens;
        if (tokens > left_tokens && !micro_batch.sequences.empty()) {
          micro_batches_.push_back(micro_batch);
          micro_batch.sequences.clear();
        }
        if (micro_batch.sequences.empty()) left_tokens = reference_.lane_tokens();
        left_tokens -= tokens;
        micro_batch.sequences.push_back(reference_.sequence(sequence));
      }
      micro_batches_.push_back(std::move(micro_batch));
      first_lane += group.lanes;
    }
  }

  const LaneReference& reference_;
  const DynamicCpOptions& options_;
  std::vector<int> left_;  // descending length
  std::vector<Group> groups_;
  int free_lanes_ = 0;
  std::vector<strategy::PipelineMicroBatch> micro_batches_;
};

}  // namespace

base::Feasible<strategy::StepPlan> dynamic_cp_plan(const DynamicCpOptions& options,
                                                   std::span<const int64_t> lengths,
                                                   const cost::CostModel& cost, int world_size) {
  const LaneReference reference(options.scheme, options.lane_tokens, lengths, cost, world_size);
  if (std::optional<base::Infeasible> none = reference.lacks_lanes()) return std::move(*none);
  for (const int64_t length : lengths) {
    int lanes = 1;
    while (lanes < reference.fewest_lanes(length)) lanes *= 2;
    if (lanes <= reference.lanes()) continue;
    return base::Infeasible{base::text("a sequence of ", length, " tokens takes ", lanes,
                                       " lanes, the next power of two, but ", to_text(options.scheme),
                                       " has ", reference.lanes(), ": raise cp or tp")};
  }
  return reference.plan(Rounds(reference, options).run());
}

}  // namespace sluice::published
