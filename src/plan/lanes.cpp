#include "plan/lanes.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using strategy::MicroBatch;

// How one try cuts sequences and fills lanes.
struct Try {
  int64_t limit_ns = 0;        // of a sequence on its lanes
  int64_t micro_batch_ns = 0;  // aim for a lane's own micro-batches; 0: as few as hold them
  enum class Order : uint8_t { kRingsFirst, kRingsBetween } order = Order::kRingsFirst;
};

// A micro-batch of one lane, or a ring: one sequence on several.
struct LaneUnit {
  int first_lane = 0;
  int lanes = 1;
  std::vector<int> sequences;
};

// Units, and by lane which of them it runs in order; a ring stands in the list of each of its lanes.
struct Draft {
  std::vector<LaneUnit> units;
  std::vector<std::vector<int>> lanes;
};

// Idle time of a lane before one of its rings.
struct Gap {
  int lane = 0;
  int ring = 0;  // unit
  int64_t left_ns = 0;
  int64_t left_tokens = 0;
  std::vector<PackItem> items;
};

// Where a lane stands once its rings are placed.
struct LaneEnd {
  int64_t ring_end_ns = 0;
  int64_t work_ns = 0;  // behind it
  int64_t tokens = 0;
  std::vector<PackItem> items;
};

// The fullest lane's part of a sequence on several.
cost::Work fullest_part(int64_t length, int lanes) {
  int64_t most = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    most = std::max(most, strategy::causal_chunk(length, lanes, lane).size() +
                              strategy::causal_chunk(length, lanes, 2 * lanes - 1 - lane).size());
  }
  return cost::Work::of_lane(most, length, lanes);
}

// The lanes of one pipeline as rings are put on them.
class Skyline {
 public:
  explicit Skyline(int lanes) : end_ns_(static_cast<size_t>(lanes), 0) {}

  // The first lane of the run that is free soonest; of equals the one that leaves least idle, then the first.
  int best_run(int lanes) const {
    const auto width = static_cast<size_t>(lanes);
    std::deque<size_t> highest;  // lanes of the run whose ends descend
    int64_t sum_ns = 0;
    std::pair<int64_t, int64_t> best{std::numeric_limits<int64_t>::max(), 0};
    int first = 0;
    for (size_t lane = 0; lane < end_ns_.size(); ++lane) {
      while (!highest.empty() && end_ns_[highest.back()] <= end_ns_[lane]) highest.pop_back();
      highest.push_back(lane);
      sum_ns += end_ns_[lane];
      if (lane + 1 < width) continue;
      const size_t begin = lane + 1 - width;
      if (highest.front() < begin) highest.pop_front();
      const std::pair next{end_ns_[highest.front()], -sum_ns};
      if (next < best) first = static_cast<int>(begin);
      best = std::min(best, next);
      sum_ns -= end_ns_[begin];
    }
    return first;
  }
  int64_t& end_ns(int lane) { return end_ns_[static_cast<size_t>(lane)]; }

 private:
  std::vector<int64_t> end_ns_;
};

class LanePacker {
 public:
  LanePacker(const strategy::Pipeline& pipeline, const SchemeCost& scheme, const cost::CostModel& cost,
             std::span<const int64_t> lengths, std::span<const int> members)
      : pipeline_(pipeline),
        scheme_(scheme),
        times_(pipeline, cost),
        lengths_(lengths),
        order_(members.begin(), members.end()) {
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return length(a) > length(b); });
    for (const int sequence : order_) share_ns_ += scheme.sequence_ns(length(sequence));
  }

  PackedPipeline run() {
    for (const Try& next : tries()) {
      Draft draft = make(next);
      const int64_t makespan_ns = score(draft);
      if (best_ns_ && *best_ns_ <= makespan_ns) continue;
      best_ns_ = makespan_ns;
      best_ = std::move(draft);
      if (near_enough(makespan_ns)) break;
    }
    return {.plan = plan(), .makespan_ns = *best_ns_};
  }

 private:
  int lanes() const { return scheme_.scheme().cp; }
  int64_t length(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  // Nothing ends before the work divided by the lanes.
  bool near_enough(int64_t makespan_ns) const { return makespan_ns - share_ns_ <= share_ns_ / 1000; }

  std::vector<Try> tries() const;
  int lanes_within(int64_t length, int64_t limit_ns) const;
  Draft make(const Try& how) const;
  void place_ring(int sequence, int lanes, Skyline& skyline, Draft& draft, std::vector<Gap>& gaps) const;
  void place_others(std::vector<PackItem> others, std::vector<Gap>& gaps, std::vector<LaneEnd>& ends) const;
  Bins micro_batches(const std::vector<PackItem>& items, const Try& how) const;
  void assemble(const Try& how, const std::vector<Gap>& gaps, const std::vector<LaneEnd>& ends,
                Draft& draft) const;
  schedule::Unit unit_of(const LaneUnit& unit) const;
  int64_t score(const Draft& draft) const;
  strategy::PipelinePlan plan() const;

  const strategy::Pipeline& pipeline_;
  const SchemeCost& scheme_;
  schedule::UnitTimes times_;
  std::span<const int64_t> lengths_;
  std::vector<int> order_;  // sequences, longest first
  int64_t share_ns_ = 0;    // of a lane, of all work
  std::optional<int64_t> best_ns_;
  Draft best_;
};

std::vector<Try> LanePacker::tries() const {
  std::vector<Try> tries;
  const int pp = scheme_.scheme().pp;
  if (pp == 1) {
    for (const int64_t part : {1, 2, 4, 8}) tries.push_back({.limit_ns = share_ns_ / part});
    return tries;
  }
  const int most = static_cast<int>(std::max<size_t>(1, order_.size() / static_cast<size_t>(lanes())));
  for (const int count : micro_batch_counts(share_ns_, scheme_.micro_batch_ns(), pp, 1, std::max(most, pp))) {
    const int64_t aim_ns = share_ns_ / count;
    for (const int64_t limit_ns : {aim_ns, 2 * aim_ns}) {
      for (const auto order : {Try::Order::kRingsFirst, Try::Order::kRingsBetween}) {
        tries.push_back({.limit_ns = limit_ns, .micro_batch_ns = aim_ns, .order = order});
      }
    }
  }
  return tries;
}

// The fewest, or those with which it is fastest when none is fast enough.
int LanePacker::lanes_within(int64_t length, int64_t limit_ns) const {
  int best = scheme_.fewest_lanes(length);
  int64_t best_ns = scheme_.lane_ns(length, best);
  // Where lanes only divide the time, so many are needed at least.
  const int64_t needed = best * (best_ns / std::max<int64_t>(1, limit_ns));
  const int64_t most = std::min<int64_t>(lanes(), length / 2);  // no lane without a token
  for (int64_t count = std::max<int64_t>(best + 1, needed); best_ns > limit_ns && count <= most; ++count) {
    const int64_t ns = scheme_.lane_ns(length, static_cast<int>(count));
    if (ns >= best_ns) break;
    best = static_cast<int>(count);
    best_ns = ns;
  }
  return best;
}

void LanePacker::place_ring(int sequence, int lanes, Skyline& skyline, Draft& draft,
                            std::vector<Gap>& gaps) const {
  const int first = skyline.best_run(lanes);
  int64_t start_ns = 0;
  for (int lane = first; lane < first + lanes; ++lane) start_ns = std::max(start_ns, skyline.end_ns(lane));
  const int ring = static_cast<int>(draft.units.size());
  for (int lane = first; lane < first + lanes; ++lane) {
    const int64_t idle_ns = start_ns - skyline.end_ns(lane) - scheme_.micro_batch_ns();
    if (idle_ns > 0) gaps.push_back({lane, ring, idle_ns, scheme_.lane_max_len_tokens(), {}});
    skyline.end_ns(lane) = start_ns + scheme_.lane_ns(length(sequence), lanes);
    draft.lanes[static_cast<size_t>(lane)].push_back(ring);
  }
  draft.units.push_back({first, lanes, {sequence}});
}

// The tightest gap that has room, else the lane that ends first.
void LanePacker::place_others(std::vector<PackItem> others, std::vector<Gap>& gaps,
                              std::vector<LaneEnd>& ends) const {
  constexpr int kGapsTried = 4;
  std::stable_sort(others.begin(), others.end(),
                   [](const PackItem& a, const PackItem& b) { return a.work_ns > b.work_ns; });
  std::set<std::pair<int64_t, size_t>> rooms;
  for (size_t gap = 0; gap < gaps.size(); ++gap) rooms.emplace(gaps[gap].left_ns, gap);
  // A pipeline whose memory does not hold the model stays empty.
  const int64_t most = std::max<int64_t>(1, scheme_.lane_max_len_tokens());
  const auto end_ns = [&](const LaneEnd& end) {
    return end.ring_end_ns + end.work_ns + (end.tokens + most - 1) / most * scheme_.micro_batch_ns();
  };
  std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>, std::greater<>>
      queue;
  for (size_t lane = 0; lane < ends.size(); ++lane) queue.emplace(end_ns(ends[lane]), lane);
  const auto fill_gap = [&](const PackItem& item) {
    auto room = rooms.lower_bound({item.work_ns, 0});
    for (int tried = 0; room != rooms.end() && tried < kGapsTried; ++room, ++tried) {
      Gap& gap = gaps[room->second];
      if (gap.left_tokens < item.tokens) continue;
      gap.items.push_back(item);
      gap.left_ns -= item.work_ns;
      gap.left_tokens -= item.tokens;
      const size_t index = room->second;
      rooms.erase(room);
      rooms.emplace(gap.left_ns, index);
      return true;
    }
    return false;
  };
  for (const PackItem& item : others) {
    if (fill_gap(item)) continue;
    const size_t lane = queue.top().second;
    queue.pop();
    LaneEnd& end = ends[lane];
    end.items.push_back(item);
    end.work_ns += item.work_ns;
    end.tokens += item.tokens;
    queue.emplace(end_ns(end), lane);
  }
}

// A lane's own sequences, in even micro-batches of about the time that the try aims at.
Bins LanePacker::micro_batches(const std::vector<PackItem>& items, const Try& how) const {
  if (items.empty()) return {};
  const int64_t capacity = scheme_.lane_max_len_tokens();
  int64_t tokens = 0;
  int64_t work_ns = 0;
  for (const PackItem& item : items) {
    tokens += item.tokens;
    work_ns += item.work_ns;
  }
  int64_t count = (tokens + capacity - 1) / capacity;
  if (how.micro_batch_ns > 0) count = std::max(count, work_ns / how.micro_batch_ns);
  count = std::min(count, static_cast<int64_t>(items.size()));
  if (auto even = balance(items, static_cast<int>(count), capacity)) return std::move(*even);
  return first_fit_decreasing(items, capacity);
}

// In front of each ring what fills its gap; behind the rings, or in two halves around them, the rest: larger
// micro-batches first, and of the half in front the smallest.
void LanePacker::assemble(const Try& how, const std::vector<Gap>& gaps, const std::vector<LaneEnd>& ends,
                          Draft& draft) const {
  const auto add = [&](int lane, const std::vector<PackItem>& items, const std::vector<int>& bin) {
    LaneUnit unit{.first_lane = lane, .lanes = 1, .sequences = {}};
    for (const int item : bin) unit.sequences.push_back(items[static_cast<size_t>(item)].sequence);
    draft.units.push_back(std::move(unit));
    return static_cast<int>(draft.units.size()) - 1;
  };
  for (const Gap& gap : gaps) {
    if (gap.items.empty()) continue;
    std::vector<int> bin(gap.items.size());
    std::iota(bin.begin(), bin.end(), 0);
    std::vector<int>& lane = draft.lanes[static_cast<size_t>(gap.lane)];
    lane.insert(std::find(lane.begin(), lane.end(), gap.ring), add(gap.lane, gap.items, bin));
  }
  for (size_t l = 0; l < ends.size(); ++l) {
    const std::vector<PackItem>& items = ends[l].items;
    const auto work_ns = [&](const std::vector<int>& bin) {
      int64_t sum_ns = 0;
      for (const int item : bin) sum_ns += items[static_cast<size_t>(item)].work_ns;
      return sum_ns;
    };
    Bins bins = micro_batches(items, how);
    std::stable_sort(bins.begin(), bins.end(),
                     [&](const auto& a, const auto& b) { return work_ns(a) > work_ns(b); });
    std::vector<int>& lane = draft.lanes[l];
    for (size_t i = 0; i < bins.size(); ++i) {
      const int unit = add(static_cast<int>(l), items, bins[i]);
      const bool in_front = how.order == Try::Order::kRingsBetween && 2 * i >= bins.size();
      lane.insert(in_front ? lane.begin() : lane.end(), unit);
    }
  }
}

Draft LanePacker::make(const Try& how) const {
  Draft draft{.units = {}, .lanes = std::vector<std::vector<int>>(static_cast<size_t>(lanes()))};
  Skyline skyline(lanes());
  std::vector<Gap> gaps;
  std::vector<PackItem> others;
  for (const int sequence : order_) {
    const int64_t tokens = length(sequence);
    const int count = lanes_within(tokens, how.limit_ns);
    if (count > 1) {
      place_ring(sequence, count, skyline, draft, gaps);
    } else {
      others.push_back({.sequence = sequence,
                        .tokens = tokens,
                        .work_ns = scheme_.lane_ns(tokens, 1) - scheme_.micro_batch_ns()});
    }
  }
  std::vector<LaneEnd> ends;
  for (int lane = 0; lane < lanes(); ++lane) ends.push_back({.ring_end_ns = skyline.end_ns(lane)});
  place_others(std::move(others), gaps, ends);
  assemble(how, gaps, ends, draft);
  return draft;
}

schedule::Unit LanePacker::unit_of(const LaneUnit& unit) const {
  if (unit.lanes > 1) {
    const std::vector<cost::Work> parts(static_cast<size_t>(unit.lanes),
                                        fullest_part(length(unit.sequences.front()), unit.lanes));
    return times_.of(parts, unit.first_lane);
  }
  cost::Work work;
  for (const int sequence : unit.sequences)
    work += cost::Work::of_lane(length(sequence), length(sequence), 1);
  return times_.of(std::span(&work, 1), unit.first_lane);
}

// With one stage units follow each other on every lane, forward and backward at once.
int64_t LanePacker::score(const Draft& draft) const {
  schedule::PipelineLoad load{
      .stages = scheme_.scheme().pp, .lanes = lanes(), .credit_tokens = scheme_.credit_tokens(), .units = {}};
  std::vector<int64_t> end_ns(draft.lanes.size(), 0);
  for (const int index : schedule::injection_order(draft.lanes)) {
    load.units.push_back(unit_of(draft.units[static_cast<size_t>(index)]));
    const schedule::Unit& unit = load.units.back();
    const auto first = end_ns.begin() + unit.first_lane;
    const int64_t start_ns = *std::max_element(first, first + unit.lanes);
    std::fill(first, first + unit.lanes,
              start_ns + unit.forward_ns[0] + unit.backward_input_ns[0] + unit.backward_weight_ns[0]);
  }
  if (load.stages == 1) return *std::max_element(end_ns.begin(), end_ns.end());
  return schedule::schedule_pipeline(load).makespan_ns;
}

strategy::PipelinePlan LanePacker::plan() const {
  strategy::PipelinePlan plan{.pipeline = pipeline_,
                              .max_len_tokens = scheme_.lane_max_len_tokens(),
                              .lanes = std::vector<std::vector<MicroBatch>>(static_cast<size_t>(lanes()))};
  for (size_t l = 0; l < best_.lanes.size(); ++l) {
    for (const int index : best_.lanes[l]) {
      const LaneUnit& unit = best_.units[static_cast<size_t>(index)];
      MicroBatch& micro_batch = plan.lanes[l].emplace_back();
      if (unit.lanes > 1) micro_batch.ring = index;
      std::vector<int> sequences = unit.sequences;
      std::sort(sequences.begin(), sequences.end());
      const int place = static_cast<int>(l) - unit.first_lane;
      for (const int sequence : sequences) {
        if (unit.lanes == 1) {
          micro_batch.pieces.push_back({sequence, 0, length(sequence)});
        } else {
          micro_batch.pieces = strategy::lane_pieces(sequence, length(sequence), unit.lanes, place);
        }
      }
    }
  }
  return plan;
}

}  // namespace

PackedPipeline pack_lanes(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                          const cost::CostModel& cost, std::span<const int64_t> lengths,
                          std::span<const int> members) {
  SLUICE_ASSERT(pipeline.scheme.cp > 1, "a pipeline of one lane is packed by pack()");
  return LanePacker(pipeline, scheme, cost, lengths, members).run();
}

}  // namespace sluice::plan
