#include "published/byte_scale.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "published/lane_floor.h"
#include "published/lane_reference.h"

namespace sluice::published {
namespace {

// A sequence alone on its lanes, at any place.
strategy::PipelineMicroBatch long_micro_batch(const LaneReference& reference, const LaneOffload& offload,
                                              int sequence) {
  const LaneCut cut = offload.cut(reference.length(sequence));
  return {.lanes = cut.lanes, .sequences = {reference.sequence(sequence)}, .memory = cut.memory};
}

// Puts short sequences into the fullest micro-batch that still has room, the oldest of equals.
std::vector<strategy::PipelineMicroBatch> best_fit(const LaneReference& reference,
                                                   std::span<const int> sequences) {
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  std::set<std::pair<int64_t, size_t>> rooms;  // tokens left, micro-batch
  for (const int sequence : sequences) {
    const int64_t tokens = reference.length(sequence);
    int64_t left = reference.lane_tokens();
    size_t micro_batch = micro_batches.size();
    const auto room = rooms.lower_bound({tokens, 0});
    if (room != rooms.end()) {
      std::tie(left, micro_batch) = *room;
      rooms.erase(room);
    } else {
      micro_batches.emplace_back();
    }
    micro_batches[micro_batch].sequences.push_back(reference.sequence(sequence));
    rooms.emplace(left - tokens, micro_batch);
  }
  return micro_batches;
}

std::vector<strategy::PipelineMicroBatch> naive(const LaneReference& reference, const LaneOffload& offload,
                                                size_t sequences) {
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  std::vector<int> shorts;
  for (int s = 0; s < static_cast<int>(sequences); ++s) {
    if (reference.length(s) <= reference.lane_tokens()) {
      shorts.push_back(s);
    } else {
      micro_batches.push_back(long_micro_batch(reference, offload, s));
    }
  }
  for (strategy::PipelineMicroBatch& micro_batch : best_fit(reference, shorts))
    micro_batches.push_back(std::move(micro_batch));

  std::vector<int> used;  // lanes by round
  std::vector<std::vector<strategy::PipelineMicroBatch>> rounds;
  size_t first_open = 0;
  for (strategy::PipelineMicroBatch& micro_batch : micro_batches) {
    size_t round = first_open;
    while (round < used.size() && used[round] + micro_batch.lanes > reference.lanes()) ++round;
    if (round == used.size()) {
      used.push_back(0);
      rounds.emplace_back();
    }
    micro_batch.first_lane = used[round];
    used[round] += micro_batch.lanes;
    rounds[round].push_back(std::move(micro_batch));
    while (first_open < used.size() && used[first_open] == reference.lanes()) ++first_open;
  }
  std::vector<strategy::PipelineMicroBatch> ordered;
  for (std::vector<strategy::PipelineMicroBatch>& round : rounds) {
    for (strategy::PipelineMicroBatch& micro_batch : round) ordered.push_back(std::move(micro_batch));
  }
  return ordered;
}

// Algorithm 2.
class Balance {
 public:
  Balance(const LaneReference& reference, const LaneOffload& offload, const ByteScaleOptions& options,
          std::span<const int64_t> lengths)
      : reference_(reference), offload_(offload), options_(options), floor_(reference.lanes()) {
    make_buckets(lengths);
  }

  std::vector<strategy::PipelineMicroBatch> run() {
    while (!buckets_.empty()) {
      std::vector<int> lanes = targets();
      while (!lanes.empty() && !buckets_.empty()) give(lanes);
    }
    return std::move(micro_batches_);
  }

 private:
  // Fills buckets with the longest first; a bucket is full when the work up to its end is its share of all.
  void make_buckets(std::span<const int64_t> lengths) {
    const auto work_ns = [&](int s) {
      return reference_.scheme().micro_batch_work_ns(reference_.scheme().share_of(reference_.length(s), 1),
                                                     1);
    };
    int64_t tokens = 0;
    int64_t all_ns = 0;
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
      tokens += reference_.length(s);
      all_ns += work_ns(s);
    }
    const int64_t filled = reference_.lanes() * std::max<int64_t>(1, reference_.lane_tokens());
    const int64_t count = options_.buckets > 0 ? options_.buckets : (tokens + filled - 1) / filled;
    int64_t sum_ns = 0;
    for (const int s : reference_.longest_first()) {
      const bool full = static_cast<cost::Wide>(sum_ns) * count >=
                        static_cast<cost::Wide>(all_ns) * static_cast<int64_t>(buckets_.size());
      if (full) buckets_.emplace_back();
      buckets_.back().push_back(s);
      sum_ns += work_ns(s);
    }
  }

  std::vector<int> targets() const {
    const int64_t last_ns = floor_.end_ns({0, floor_.lanes()});
    std::vector<int> lanes;
    std::vector<int> all;
    for (int lane = 0; lane < floor_.lanes(); ++lane) {
      all.push_back(lane);
      if (last_ns - floor_.end_ns(lane) > options_.slack_ns) lanes.push_back(lane);
    }
    if (lanes.empty()) lanes = all;
    std::stable_sort(lanes.begin(), lanes.end(),
                     [&](int a, int b) { return floor_.end_ns(a) < floor_.end_ns(b); });
    return lanes;
  }

  // The bucket of the next sequence: by the rule, the first, or the one after the bucket used last.
  size_t next_bucket() {
    if (options_.rule == ByteScaleRule::kDpBalance) return 0;
    turn_ = turn_ % buckets_.size();
    return turn_;
  }
  void take(size_t bucket) {
    buckets_[bucket].pop_front();
    if (buckets_[bucket].empty()) {
      buckets_.erase(buckets_.begin() + static_cast<std::ptrdiff_t>(bucket));
    } else {
      ++turn_;
    }
  }

  // Gives one micro-batch to the first target, or to the run of lanes that a long sequence takes.
  void give(std::vector<int>& lanes) {
    size_t bucket = next_bucket();
    const int first = buckets_[bucket].front();
    take(bucket);
    strategy::PipelineMicroBatch micro_batch;
    if (reference_.length(first) > reference_.lane_tokens()) {
      micro_batch = long_micro_batch(reference_, offload_, first);
      micro_batch.first_lane = floor_.soonest(micro_batch.lanes).first;
    } else {
      micro_batch = {.first_lane = lanes.front(), .sequences = {reference_.sequence(first)}};
      for (int64_t left = reference_.lane_tokens() - reference_.length(first); !buckets_.empty();) {
        bucket = next_bucket();
        const int next = buckets_[bucket].front();
        left -= reference_.length(next);
        if (left < 0) break;
        micro_batch.sequences.push_back(reference_.sequence(next));
        take(bucket);
      }
    }
    const plan::LaneRun run{micro_batch.first_lane, micro_batch.lanes};
    floor_.raise(run, floor_.end_ns(run) + reference_.micro_batch_ns(micro_batch));
    std::erase_if(lanes, [&](int lane) { return lane >= run.first && lane < run.first + run.lanes; });
    micro_batches_.push_back(std::move(micro_batch));
  }

  const LaneReference& reference_;
  const LaneOffload& offload_;
  const ByteScaleOptions& options_;
  std::deque<std::deque<int>> buckets_;
  size_t turn_ = 0;
  LaneFloor floor_;
  std::vector<strategy::PipelineMicroBatch> micro_batches_;
};

}  // namespace

base::Feasible<strategy::StepPlan> byte_scale_plan(const ByteScaleOptions& options,
                                                   std::span<const int64_t> lengths,
                                                   const cost::CostModel& cost, int world_size) {
  const LaneReference reference(options.scheme, options.lane_tokens, lengths, cost, world_size);
  if (std::optional<base::Infeasible> none = reference.lacks_lanes()) return std::move(*none);
  const LaneOffload offload(options.offload, reference, lengths, cost, world_size);
  if (options.rule == ByteScaleRule::kNaive) return reference.plan(naive(reference, offload, lengths.size()));
  return reference.plan(Balance(reference, offload, options, lengths).run());
}

}  // namespace sluice::published
