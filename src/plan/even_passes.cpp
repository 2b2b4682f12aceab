#include "plan/even_passes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plan/lane_floor.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"

namespace sluice::plan {
namespace {

using strategy::PipelinePlan;
using strategy::Unit;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;
constexpr int kBisections = 5;
// That every sequence takes, at most the lanes that share parameters, which they do where memory is short:
// wide units fill what single lanes would each leave a little of.
constexpr int kLeastLanes[] = {1, 2, 4, 8};
constexpr int kFurtherPasses = 1;
constexpr size_t kTightest = 3;  // loads that a sequence is tried on with what they exchange

// What some neighbouring lanes run in a pass: whole sequences on one, or sequences that are cut over all of
// them.
struct PassLoad {
  LaneRun lanes;
  cost::Work work;     // of the fullest lane
  int64_t end_ns = 0;  // SchemeCost::unit_ns
};

// A pass that is filled: its loads, and of each of its sequences, in their order, the load that has it.
struct FilledPass {
  std::vector<PassLoad> loads;
  std::vector<int> load_of;
  int64_t end_ns() const {
    return loads.empty() ? 0 : std::ranges::max_element(loads, {}, &PassLoad::end_ns)->end_ns;
  }
};

// Free lanes of a node.
struct Node {
  int first = 0;
  int end = 0;
  bool whole = true;
  int free() const { return end - first; }
};

// What sequences take on so many lanes, one micro-batch each; computed when it is first asked for, and once
// for sequences that are as long as the one before.
class WidthTimes {
 public:
  // Lengths that descend, and widths that ascend.
  WidthTimes(const SchemeCost& scheme, std::span<const int64_t> lengths, std::vector<int> widths)
      : scheme_(scheme), widths_(std::move(widths)) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (i == 0 || lengths[i] != lengths[i - 1]) {
        lengths_.push_back({.tokens = lengths[i],
                            .alone_ns = scheme.load_ns(SchemeCost::fullest_share(lengths[i], 1)),
                            .fewest = scheme.fewest_lanes(lengths[i])});
      }
      length_of_.push_back(static_cast<int>(lengths_.size()) - 1);
    }
    lane_ns_.assign(lengths_.size() * widths_.size(), -1);
  }

  // Its work without a micro-batch's constant.
  int64_t alone_ns(int place) const { return of(place).alone_ns; }
  // The fewest lanes, `least` at least, on which it ends by then; 0: on none.
  int fewest_lanes(int place, int64_t limit_ns, int64_t least) {
    const Length& length = of(place);
    const int64_t room_ns = std::max<int64_t>(1, limit_ns - scheme_.micro_batch_ns());
    const int64_t most = std::max<int64_t>(1, length.tokens / 2);
    const int64_t fewest =
        std::max<int64_t>({(length.alone_ns - 1) / room_ns + 1, length.fewest, std::min(least, most)});
    for (auto at = std::ranges::lower_bound(widths_, fewest); at != widths_.end() && *at <= most; ++at) {
      int64_t& known_ns =
          lane_ns_[static_cast<size_t>(length_of_[static_cast<size_t>(place)]) * widths_.size() +
                   static_cast<size_t>(at - widths_.begin())];
      if (known_ns < 0) known_ns = scheme_.lane_ns(length.tokens, *at);
      if (known_ns <= limit_ns) return *at;
    }
    return 0;
  }

 private:
  struct Length {
    int64_t tokens = 0;
    int64_t alone_ns = 0;
    int fewest = 1;  // lanes that hold it
  };
  const Length& of(int place) const {
    return lengths_[static_cast<size_t>(length_of_[static_cast<size_t>(place)])];
  }

  const SchemeCost& scheme_;
  std::vector<int> widths_;
  std::vector<Length> lengths_;   // those that differ
  std::vector<int> length_of_;    // by place
  std::vector<int64_t> lane_ns_;  // by length, then width; -1: not asked for yet
};

// Fills one pass of which every lane ends by a limit.
class PassTrial {
 public:
  PassTrial(const SchemeCost& scheme, std::span<const LaneRun> nodes, WidthTimes& times)
      : scheme_(scheme), times_(times), all_nodes_(nodes.begin(), nodes.end()) {}

  // Whether the sequences at these places, the longest first, of which `lengths` has the lengths, all end by
  // then, each on so many lanes at least.
  bool fill(std::span<const int> places, std::span<const int64_t> lengths, int64_t limit_ns,
            int least_lanes) {
    limit_ns_ = limit_ns;
    shortest_ = places.empty() ? 0 : lengths[static_cast<size_t>(places.back())];
    nodes_.clear();
    for (const LaneRun& node : all_nodes_) nodes_.push_back({node.first, node.first + node.lanes});
    filled_.loads.clear();
    filled_.load_of.clear();
    singles_.clear();
    cut_.clear();
    length_ = 0;
    for (const int place : places) {
      const int64_t length = lengths[static_cast<size_t>(place)];
      if (length != length_) {
        length_ = length;
        alone_ns_ = times_.alone_ns(place);
        lanes_ = times_.fewest_lanes(place, limit_ns, least_lanes);
      }
      if (lanes_ == 0 || !((lanes_ == 1 && join_single()) || join_cut() || begin())) return false;
    }
    return true;
  }
  const FilledPass& filled() const { return filled_; }

 private:
  int64_t capacity() const { return scheme_.lane_max_len_tokens(); }
  PassLoad& load(int index) { return filled_.loads[static_cast<size_t>(index)]; }

  // The single lane that ends last of those that still end in time.
  bool join_single() {
    auto at =
        std::ranges::upper_bound(singles_, std::pair(limit_ns_ - alone_ns_, std::numeric_limits<int>::max()));
    while (at != singles_.begin()) {
      --at;
      const int index = at->second;
      const PassLoad& single = load(index);
      if (single.work.tokens + length_ > capacity() || !extend(index)) continue;
      singles_.erase(at);
      if (single.work.tokens + shortest_ <= capacity()) add_single(index);
      return true;
    }
    return false;
  }

  void add_single(int index) {
    const std::pair single(load(index).end_ns, index);
    singles_.insert(std::ranges::upper_bound(singles_, single), single);
  }

  bool extend(int index) {
    PassLoad& extended = load(index);
    cost::Work work = extended.work;
    work += SchemeCost::fullest_share(length_, extended.lanes.lanes);
    if (work.tokens > capacity()) return false;
    const int64_t end_ns = scheme_.unit_ns(work, extended.lanes.lanes);
    if (end_ns > limit_ns_) return false;
    extended.work = work;
    extended.end_ns = end_ns;
    filled_.load_of.push_back(index);
    return true;
  }

  // The load of several lanes that has least room left of those with room.
  bool join_cut() {
    std::vector<std::pair<__int128, int>>& tightest = tightest_;
    tightest.clear();
    for (const int index : cut_) {
      const PassLoad& cut = load(index);
      const int lanes = cut.lanes.lanes;
      if (lanes < lanes_ || cut.work.tokens + length_ / lanes > capacity()) continue;
      const __int128 left_ns = static_cast<__int128>(limit_ns_ - cut.end_ns) * lanes - alone_ns_;
      if (left_ns >= 0) tightest.emplace_back(left_ns, index);
    }
    const size_t tried = std::min(tightest.size(), kTightest);
    std::ranges::partial_sort(tightest, tightest.begin() + static_cast<std::ptrdiff_t>(tried));
    tightest.resize(tried);
    return std::ranges::any_of(tightest, [&](const auto& cut) { return extend(cut.second); });
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

  bool begin() {
    const std::optional<LaneRun> run = free_run();
    if (!run) return false;
    const int index = static_cast<int>(filled_.loads.size());
    const cost::Work work = SchemeCost::fullest_share(length_, run->lanes);
    filled_.loads.push_back({*run, work, scheme_.unit_ns(work, run->lanes)});
    filled_.load_of.push_back(index);
    if (run->lanes == 1) {
      add_single(index);
    } else {
      cut_.push_back(index);
    }
    return true;
  }

  const SchemeCost& scheme_;
  WidthTimes& times_;
  std::vector<LaneRun> all_nodes_;
  int64_t limit_ns_ = 0;
  int64_t shortest_ = 0;  // of the sequences to come
  int64_t length_ = 0;
  int64_t alone_ns_ = 0;  // the work of a sequence of this length
  int lanes_ = 0;         // that a sequence of this length takes
  std::vector<Node> nodes_;
  FilledPass filled_;
  std::vector<std::pair<int64_t, int>> singles_;   // end and load of those on one lane, ascending
  std::vector<int> cut_;                           // the others
  std::vector<std::pair<__int128, int>> tightest_;  // of join_cut
};

using Passes = std::vector<std::vector<int>>;  // places of sequences, ascending

class EvenPacker {
 public:
  EvenPacker(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
             std::span<const int64_t> lengths, std::span<const int> members)
      : pipeline_(pipeline),
        scheme_(scheme),
        unit_times_(pipeline, cost),
        nodes_(node_runs(pipeline, cost.options().gpus_per_node)),
        order_(members.begin(), members.end()) {
    std::ranges::stable_sort(order_, std::greater<>(),
                             [&](int s) { return lengths[static_cast<size_t>(s)]; });
    for (const int sequence : order_) sorted_.push_back(lengths[static_cast<size_t>(sequence)]);
    width_times_.emplace(scheme_, sorted_, widths());
    trial_.emplace(scheme_, nodes_, *width_times_);
  }

  std::optional<PackedPipeline> run(int64_t below_ns, int64_t enough_ns) {
    const int64_t room = std::max<int64_t>(1, scheme_.lane_max_len_tokens() * lanes());
    const auto fewest = static_cast<int>((cost::Work::of(sorted_).tokens + room - 1) / room);
    int most = std::numeric_limits<int>::max();
    std::optional<PackedPipeline> best;
    for (int passes = std::max(1, fewest); passes <= most; ++passes) {
      if (least_ns(sorted_) + passes * scheme_.micro_batch_ns() >= below_ns) break;
      for (const Passes& shared_out : {in_runs(passes), in_full_runs(passes), in_turns(passes)}) {
        for (const int least_lanes : kLeastLanes) {
          if (least_lanes > pipeline_.scheme.share) break;
          const auto plan = plan_of(shared_out, below_ns, least_lanes);
          if (!plan) continue;
          most = std::min(most, passes + kFurtherPasses);
          PackedPipeline next = timed(*plan);
          if (next.makespan_ns < below_ns) {
            below_ns = next.makespan_ns;
            best = std::move(next);
          }
          if (below_ns <= enough_ns) return best;
        }
        if (passes == 1) break;
      }
    }
    return best;
  }

 private:
  int lanes() const { return scheme_.scheme().cp; }
  int64_t length(int place) const { return sorted_[static_cast<size_t>(place)]; }

  // Of the work alone, were it even over all lanes.
  int64_t least_ns(std::span<const int64_t> lengths) const {
    const cost::Work all = cost::Work::of(lengths);
    return scheme_.load_ns({.tokens = all.tokens / lanes(), .squares = all.squares / lanes()});
  }

  // Of a pass with these sequences.
  int64_t least_ns(const std::vector<int>& places) const {
    if (places.empty()) return 0;
    std::vector<int64_t> lengths;
    for (const int place : places) lengths.push_back(length(place));
    return least_ns(std::span<const int64_t>(lengths)) + scheme_.micro_batch_ns();
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

  // With the least last end that is found; nothing where the pass does not hold the sequences by a limit.
  std::optional<FilledPass> fill(const std::vector<int>& places, int64_t below_ns, int least_lanes) {
    const auto by = [&](int64_t limit_ns) { return trial_->fill(places, sorted_, limit_ns, least_lanes); };
    if (!by(std::min(below_ns, kNever))) return std::nullopt;
    FilledPass best = trial_->filled();
    if (places.empty()) return best;
    int64_t low_ns = least_ns(places);
    int64_t high_ns = low_ns;
    for (int64_t part = 64; high_ns < below_ns; part = std::max<int64_t>(part / 2, 1)) {
      high_ns += high_ns / part + 1;
      if (by(high_ns)) {
        best = trial_->filled();
        break;
      }
      low_ns = high_ns;
    }
    high_ns = std::min(high_ns, below_ns);
    for (int i = 0; i < kBisections; ++i) {
      const int64_t middle_ns = low_ns + (high_ns - low_ns) / 2;
      const bool in_time = by(middle_ns);
      (in_time ? high_ns : low_ns) = middle_ns;
      if (in_time) best = trial_->filled();
    }
    return best;
  }

  // Nothing where some pass does not hold its sequences, or takes as long as the plan should.
  std::optional<PipelinePlan> plan_of(const Passes& shared_out, int64_t below_ns, int least_lanes) {
    PipelinePlan plan{.pipeline = pipeline_, .max_len_tokens = scheme_.lane_max_len_tokens(), .units = {}};
    int passes = 0;
    // Where all lanes share, one pass follows the other: what is left for one is what the others leave.
    const bool in_turn = pipeline_.scheme.share == lanes();
    int64_t left_ns = below_ns;
    for (const std::vector<int>& places : shared_out) left_ns -= in_turn ? least_ns(places) : 0;
    for (const std::vector<int>& places : shared_out) {
      if (in_turn) left_ns += least_ns(places);
      const std::optional<FilledPass> filled = fill(places, left_ns, least_lanes);
      if (!filled) return std::nullopt;
      if (in_turn) left_ns -= filled->end_ns();
      std::vector<Unit> units = units_of(*filled, places, static_cast<int>(plan.units.size()));
      int reached = 0;  // the end of the share groups of the pass so far
      for (Unit& unit : units) {
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

  // By first lane, numbered from `first` on.
  std::vector<Unit> units_of(const FilledPass& filled, const std::vector<int>& places, int first) const {
    std::vector<Unit> units;
    for (const PassLoad& load : filled.loads)
      units.push_back({.first_lane = load.lanes.first, .lanes = load.lanes.lanes, .sequences = {}});
    for (size_t i = 0; i < places.size(); ++i) {
      units[static_cast<size_t>(filled.load_of[i])].sequences.push_back(
          {order_[static_cast<size_t>(places[i])], length(places[i])});
    }
    std::ranges::sort(units, {}, &Unit::first_lane);
    for (Unit& unit : units) {
      std::ranges::sort(unit.sequences, {}, &strategy::UnitSequence::sequence);
      const int index = first++;
      if (unit.lanes == 1) continue;
      unit.ring = index;
      const cost::ExchangeChoice choice = unit_times_.cheapest_exchange(unit, scheme_.lane_max_len_tokens());
      unit.exchange = choice.exchange;
      unit.nested_lanes = choice.nested_lanes;
    }
    return units;
  }

  PackedPipeline timed(PipelinePlan plan) const {
    schedule::PipelineLoad load{
        .stages = 1, .lanes = lanes(), .credit_tokens = scheme_.credit_tokens(), .units = {}};
    for (const strategy::Pass& pass : strategy::passes(plan))
      load.units.push_back(unit_times_.of(plan, pass));
    return {std::move(plan), schedule::schedule_pipeline(load).makespan_ns};
  }

  // That sequences are cut over. Beyond a node whole ones: heads then divide best, and no node's lanes are
  // cut in two.
  std::vector<int> widths() const {
    int node_lanes = 1;
    for (const LaneRun& node : nodes_) node_lanes = std::max(node_lanes, node.lanes);
    std::vector<int> widths;
    for (int width = 1; width < lanes(); width += width < node_lanes ? 1 : node_lanes)
      widths.push_back(width);
    widths.push_back(lanes());
    return widths;
  }

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  schedule::UnitTimes unit_times_;
  std::vector<LaneRun> nodes_;
  std::vector<int> order_;       // sequences, the longest first
  std::vector<int64_t> sorted_;  // their lengths
  std::optional<WidthTimes> width_times_;
  std::optional<PassTrial> trial_;
};

}  // namespace

std::optional<PackedPipeline> pack_even(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                        const cost::CostModel& cost, std::span<const int64_t> lengths,
                                        std::span<const int> members, const PackOptions& options) {
  SLUICE_ASSERT(pipeline.scheme.pp == 1 && pipeline.scheme.cp > 1, "passes are filled on lanes of one stage");
  return EvenPacker(pipeline, scheme, cost, lengths, members).run(options.below_ns, options.enough_ns);
}

}  // namespace sluice::plan
