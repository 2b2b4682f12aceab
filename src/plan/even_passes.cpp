#include "plan/even_passes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plan/lane_floor.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using strategy::PipelinePlan;
using strategy::Unit;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;
constexpr int kBisections = 5;
constexpr int kFurtherPasses = 1;
constexpr size_t kTightest = 3;  // loads that a sequence is tried on with what they exchange

// What some neighbouring lanes run in a pass: whole sequences on one, or sequences that are cut over all of
// them.
struct PassLoad {
  LaneRun lanes;
  std::vector<int> members;  // places in the lengths of the pass
  cost::Work work;           // of the fullest lane
  int64_t end_ns = 0;        // SchemeCost::unit_ns
};

// Free lanes of a node.
struct Node {
  int first = 0;
  int end = 0;
  bool whole = true;
  int free() const { return end - first; }
};

// Fills one pass of which every lane ends by a limit.
class PassTrial {
 public:
  PassTrial(const SchemeCost& scheme, std::span<const LaneRun> nodes, std::span<const int> widths,
            int64_t limit_ns, int64_t shortest)
      : scheme_(scheme), widths_(widths), limit_ns_(limit_ns), shortest_(shortest) {
    for (const LaneRun& node : nodes) nodes_.push_back({node.first, node.first + node.lanes});
  }

  bool put(int place, int64_t length) {
    if (length != length_) {
      length_ = length;
      alone_ns_ = scheme_.load_ns(SchemeCost::fullest_share(length, 1));
      lanes_ = fewest_lanes();
    }
    if (lanes_ == 0) return false;
    return (lanes_ == 1 && join_single(place)) || join_cut(place) || begin(place);
  }
  std::vector<PassLoad> take() { return std::move(loads_); }

 private:
  int64_t capacity() const { return scheme_.lane_max_len_tokens(); }

  // On which the sequence ends in time; 0: on none.
  int fewest_lanes() const {
    const int64_t room_ns = std::max<int64_t>(1, limit_ns_ - scheme_.micro_batch_ns());
    const int64_t divided = (alone_ns_ - 1) / room_ns + 1;
    const int64_t fewest = std::max<int64_t>(divided, scheme_.fewest_lanes(length_));
    const int64_t most = std::max<int64_t>(1, length_ / 2);
    for (auto at = std::ranges::lower_bound(widths_, fewest); at != widths_.end() && *at <= most; ++at) {
      if (scheme_.lane_ns(length_, *at) <= limit_ns_) return *at;
    }
    return 0;
  }

  // The single lane that ends last of those that still end in time.
  bool join_single(int place) {
    auto at = singles_.upper_bound({limit_ns_ - alone_ns_, std::numeric_limits<int>::max()});
    while (at != singles_.begin()) {
      --at;
      const int index = at->second;
      const PassLoad& load = loads_[static_cast<size_t>(index)];
      if (load.work.tokens + length_ > capacity() || !extend(index, place)) continue;
      singles_.erase(at);
      if (load.work.tokens + shortest_ <= capacity()) singles_.emplace(load.end_ns, index);
      return true;
    }
    return false;
  }

  bool extend(int index, int place) {
    PassLoad& load = loads_[static_cast<size_t>(index)];
    cost::Work work = load.work;
    work += SchemeCost::fullest_share(length_, load.lanes.lanes);
    if (work.tokens > capacity()) return false;
    const int64_t end_ns = scheme_.unit_ns(work, load.lanes.lanes);
    if (end_ns > limit_ns_) return false;
    load.work = work;
    load.end_ns = end_ns;
    load.members.push_back(place);
    return true;
  }

  // The load of several lanes that has least room left of those with room.
  bool join_cut(int place) {
    std::vector<std::pair<int64_t, int>> tightest;
    for (const int index : cut_) {
      const PassLoad& load = loads_[static_cast<size_t>(index)];
      const int lanes = load.lanes.lanes;
      if (lanes < lanes_ || load.work.tokens + length_ / lanes > capacity()) continue;
      const int64_t left_ns = (limit_ns_ - load.end_ns) * lanes - alone_ns_;
      if (left_ns >= 0) tightest.emplace_back(left_ns, index);
    }
    std::ranges::sort(tightest);
    if (tightest.size() > kTightest) tightest.resize(kTightest);
    return std::ranges::any_of(tightest, [&](const auto& load) { return extend(load.second, place); });
  }

  // On the node with the fewest free lanes that has enough, or on whole nodes that follow each other.
  std::optional<LaneRun> free_run() {
    Node* best = nullptr;
    for (Node& node : nodes_) {
      if (node.free() >= lanes_ && (best == nullptr || node.free() < best->free())) best = &node;
    }
    if (best != nullptr) return take_of(*best, lanes_);
    for (size_t begin = 0; begin < nodes_.size(); ++begin) {
      int lanes = 0;
      size_t end = begin;
      while (end < nodes_.size() && nodes_[end].whole && lanes < lanes_) lanes += nodes_[end++].free();
      if (lanes < lanes_) continue;
      const LaneRun run{nodes_[begin].first, lanes_};
      int left = lanes_;
      for (size_t n = begin; n < end; ++n) left -= take_of(nodes_[n], std::min(left, nodes_[n].free())).lanes;
      return run;
    }
    return std::nullopt;
  }
  static LaneRun take_of(Node& node, int lanes) {
    const LaneRun run{node.first, lanes};
    node.first += lanes;
    node.whole = false;
    return run;
  }

  bool begin(int place) {
    const std::optional<LaneRun> run = free_run();
    if (!run) return false;
    const int index = static_cast<int>(loads_.size());
    const cost::Work work = SchemeCost::fullest_share(length_, run->lanes);
    loads_.push_back({*run, {place}, work, scheme_.unit_ns(work, run->lanes)});
    if (run->lanes == 1) {
      singles_.emplace(loads_.back().end_ns, index);
    } else {
      cut_.push_back(index);
    }
    return true;
  }

  const SchemeCost& scheme_;
  std::span<const int> widths_;
  int64_t limit_ns_;
  int64_t shortest_;  // of the sequences to come
  int64_t length_ = 0;
  int64_t alone_ns_ = 0;  // the work of a sequence of this length
  int lanes_ = 0;         // that a sequence of this length takes
  std::vector<Node> nodes_;
  std::vector<PassLoad> loads_;
  std::set<std::pair<int64_t, int>> singles_;  // end and load of those on one lane
  std::vector<int> cut_;                       // the others
};

using Passes = std::vector<std::vector<int>>;  // places of sequences, ascending

class EvenPacker {
 public:
  EvenPacker(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
             std::span<const int64_t> lengths, std::span<const int> members)
      : pipeline_(pipeline),
        scheme_(scheme),
        cost_(cost),
        nodes_(node_runs(pipeline, cost.options().gpus_per_node)),
        order_(members.begin(), members.end()) {
    std::ranges::stable_sort(order_, std::greater<>(),
                             [&](int s) { return lengths[static_cast<size_t>(s)]; });
    for (const int sequence : order_) sorted_.push_back(lengths[static_cast<size_t>(sequence)]);
    int node_lanes = 1;
    for (const LaneRun& node : nodes_) node_lanes = std::max(node_lanes, node.lanes);
    // Beyond a node whole ones: heads then divide best, and no node's lanes are cut in two.
    for (int width = 1; width < lanes(); width += width < node_lanes ? 1 : node_lanes)
      widths_.push_back(width);
    widths_.push_back(lanes());
  }

  PackedPipeline run() const {
    const int64_t room = std::max<int64_t>(1, scheme_.lane_max_len_tokens() * lanes());
    const auto fewest = static_cast<int>((cost::Work::of(sorted_).tokens + room - 1) / room);
    int most = std::numeric_limits<int>::max();
    std::optional<PackedPipeline> best;
    for (int passes = std::max(1, fewest); passes <= most; ++passes) {
      if (best && least_ns(sorted_) + passes * scheme_.micro_batch_ns() >= best->makespan_ns) break;
      for (const Passes& shared_out : {in_runs(passes), in_full_runs(passes), in_turns(passes)}) {
        const auto plan = plan_of(shared_out);
        if (plan) {
          most = std::min(most, passes + kFurtherPasses);
          PackedPipeline next = timed(*plan);
          if (!best || next.makespan_ns < best->makespan_ns) best = std::move(next);
        }
        if (passes == 1) break;
      }
    }
    return std::move(*best);
  }

 private:
  int lanes() const { return scheme_.scheme().cp; }
  int64_t length(int place) const { return sorted_[static_cast<size_t>(place)]; }

  // Of the work alone, were it even over all lanes.
  int64_t least_ns(std::span<const int64_t> lengths) const {
    const cost::Work all = cost::Work::of(lengths);
    return scheme_.load_ns({all.tokens / lanes(), all.squares / lanes()});
  }

  // Runs of descending length with as many tokens each.
  Passes in_runs(int passes) const {
    const int64_t tokens = cost::Work::of(sorted_).tokens;
    Passes shared_out(static_cast<size_t>(passes));
    int64_t before = 0;
    for (int place = 0; place < static_cast<int>(sorted_.size()); ++place) {
      const int64_t middle = before + length(place) / 2;
      shared_out[static_cast<size_t>(middle * passes / std::max<int64_t>(1, tokens))].push_back(place);
      before += length(place);
    }
    return shared_out;
  }

  // Of descending length, each pass as full as it gets; the last takes what is left.
  Passes in_full_runs(int passes) const {
    Passes shared_out(static_cast<size_t>(passes));
    size_t pass = 0;
    int64_t tokens = 0;
    for (int place = 0; place < static_cast<int>(sorted_.size()); ++place) {
      const bool full = tokens + length(place) > scheme_.lane_max_len_tokens() * lanes();
      if (full && pass + 1 < shared_out.size()) {
        ++pass;
        tokens = 0;
      }
      tokens += length(place);
      shared_out[pass].push_back(place);
    }
    return shared_out;
  }

  // Each to the pass that has the least tokens.
  Passes in_turns(int passes) const {
    Passes shared_out(static_cast<size_t>(passes));
    std::vector<int64_t> tokens(static_cast<size_t>(passes), 0);
    for (int place = 0; place < static_cast<int>(sorted_.size()); ++place) {
      const auto least = std::ranges::min_element(tokens);
      *least += length(place);
      shared_out[static_cast<size_t>(least - tokens.begin())].push_back(place);
    }
    return shared_out;
  }

  // Loads with the least last end that is found; nothing where the pass does not hold the sequences.
  std::optional<std::vector<PassLoad>> fill(const std::vector<int>& places) const {
    const auto by = [&](int64_t limit_ns) -> std::optional<std::vector<PassLoad>> {
      PassTrial trial(scheme_, nodes_, widths_, limit_ns, places.empty() ? 0 : length(places.back()));
      for (const int place : places) {
        if (!trial.put(place, length(place))) return std::nullopt;
      }
      return trial.take();
    };
    std::optional<std::vector<PassLoad>> best = by(kNever);
    if (!best || places.empty()) return best;
    std::vector<int64_t> lengths;
    for (const int place : places) lengths.push_back(length(place));
    int64_t low_ns = least_ns(lengths) + scheme_.micro_batch_ns();
    int64_t high_ns = low_ns;
    for (int64_t part = 64;; part = std::max<int64_t>(part / 2, 1)) {
      high_ns += high_ns / part + 1;
      if (auto next = by(high_ns)) {
        best = std::move(next);
        break;
      }
      low_ns = high_ns;
    }
    for (int i = 0; i < kBisections; ++i) {
      const int64_t middle_ns = low_ns + (high_ns - low_ns) / 2;
      auto next = by(middle_ns);
      (next ? high_ns : low_ns) = middle_ns;
      if (next) best = std::move(next);
    }
    return best;
  }

  // Nothing where some pass does not hold its sequences.
  std::optional<PipelinePlan> plan_of(const Passes& shared_out) const {
    PipelinePlan plan{.pipeline = pipeline_, .max_len_tokens = scheme_.lane_max_len_tokens(), .units = {}};
    const schedule::UnitTimes times(pipeline_, cost_);
    int passes = 0;
    for (const std::vector<int>& places : shared_out) {
      std::optional<std::vector<PassLoad>> loads = fill(places);
      if (!loads) return std::nullopt;
      std::ranges::sort(*loads, {}, [](const PassLoad& load) { return load.lanes.first; });
      int reached = 0;  // the end of the share groups of the pass so far
      for (const PassLoad& load : *loads) {
        Unit unit = unit_of(load, static_cast<int>(plan.units.size()), times);
        const int share = pipeline_.scheme.share;
        if (unit.first_lane >= reached) ++passes;
        reached = std::max(reached, (unit.end_lane() + share - 1) / share * share);
        if (share > 1) unit.pass = passes - 1;
        plan.units.push_back(std::move(unit));
      }
    }
    plan.units = strategy::in_injection_order(std::move(plan.units), lanes());
    return plan;
  }

  Unit unit_of(const PassLoad& load, int index, const schedule::UnitTimes& times) const {
    Unit unit{.first_lane = load.lanes.first, .lanes = load.lanes.lanes, .sequences = {}};
    for (const int place : load.members)
      unit.sequences.push_back({order_[static_cast<size_t>(place)], length(place)});
    std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
    if (unit.lanes == 1) return unit;
    unit.ring = index;
    const cost::ExchangeChoice choice = times.cheapest_exchange(unit, scheme_.lane_max_len_tokens());
    unit.exchange = choice.exchange;
    unit.nested_lanes = choice.nested_lanes;
    return unit;
  }

  PackedPipeline timed(PipelinePlan plan) const {
    const schedule::PipelineLoad load{.stages = 1,
                                      .lanes = lanes(),
                                      .credit_tokens = scheme_.credit_tokens(),
                                      .units = schedule::timed_units(plan, cost_)};
    return {std::move(plan), schedule::schedule_pipeline(load).makespan_ns};
  }

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  const cost::CostModel& cost_;
  std::vector<LaneRun> nodes_;
  std::vector<int> widths_;      // that sequences are cut over, ascending
  std::vector<int> order_;       // sequences, the longest first
  std::vector<int64_t> sorted_;  // their lengths
};

}  // namespace

PackedPipeline pack_even(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                         const cost::CostModel& cost, std::span<const int64_t> lengths,
                         std::span<const int> members) {
  SLUICE_ASSERT(pipeline.scheme.pp == 1 && pipeline.scheme.cp > 1, "passes are filled on lanes of one stage");
  return EvenPacker(pipeline, scheme, cost, lengths, members).run();
}

}  // namespace sluice::plan
