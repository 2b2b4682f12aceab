#include "plan/lanes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "base/error.h"
#include "plan/bound.h"
#include "plan/lane_draft.h"
#include "plan/lane_floor.h"
#include "plan/lane_stages.h"

namespace sluice::plan {
namespace {

// How one try cuts sequences and fills lanes.
struct Try {
  int64_t limit_ns = 0;  // of a sequence on the lanes of a node
  int64_t goal_ns = 0;   // of one that takes longer there: more lanes, to be done by then
  int64_t end_ns = 0;    // of all
};

// Sequences that take as many lanes.
struct Width {
  int lanes = 1;
  std::vector<int> members;  // places, longest first
};

// A run of lanes while rings of its width are put on it, and the last of them, which may take up more.
struct Slot {
  int64_t end_ns = 0;
  int first_lane = 0;
  int unit = -1;
  int64_t start_ns = 0;  // of that unit
  cost::Work work;       // of each of its lanes
  bool operator>(const Slot& other) const {
    return std::pair(end_ns, first_lane) > std::pair(other.end_ns, other.first_lane);
  }
};

using SlotQueue = std::priority_queue<Slot, std::vector<Slot>, std::greater<>>;  // the soonest first

// A draft before the sequences on one lane are in micro-batches.
struct Placement {
  explicit Placement(int lanes) : draft(lanes), singles(static_cast<size_t>(lanes)) {}
  LaneDraft draft;
  std::vector<std::vector<PackItem>> singles;  // by lane
  int64_t end_ns = 0;
  bool heeds_goal = false;  // some ring has more lanes than memory asks for, to reach the goal
};

class LanePacker {
 public:
  LanePacker(const SchemeCost& scheme, std::vector<LaneRun> nodes, std::span<const int64_t> lengths,
             std::span<const int> members);
  LaneDraft run() const;

 private:
  int lanes() const { return scheme_.scheme().cp; }
  int64_t length(int place) const { return sorted_[static_cast<size_t>(place)]; }
  strategy::UnitSequence sequence(int place) const {
    return {order_[static_cast<size_t>(place)], length(place)};
  }
  // Whether it is no use to look for less.
  static bool near(int64_t makespan_ns, int64_t goal_ns) { return makespan_ns - goal_ns <= goal_ns / 1000; }

  int lanes_for(int64_t length, const Try& how) const;
  std::vector<Width> widths(const Try& how) const;
  Placement place(const Try& how) const;
  void place_wide(const Width& width, const Try& how, LaneFloor& floor, LaneDraft& draft) const;
  void place_aligned(const Width& width, const Try& how, LaneFloor& floor, LaneDraft& draft) const;
  void place_rings(const Width& width, std::span<const LaneRun> runs, const Try& how, LaneFloor& floor,
                   LaneDraft& draft) const;
  void place_singles(const Width& width, LaneFloor& floor, Placement& placement) const;
  void put(int place, const cost::Work& more, int64_t alone_ns, int width, Slot& slot,
           LaneDraft& draft) const;
  Bins micro_batches(std::span<const PackItem> items) const;
  LaneDraft assemble(Placement placement) const;

  const SchemeCost& scheme_;
  std::vector<LaneRun> nodes_;
  std::vector<int> node_widths_;  // descending, those of one lane left out
  std::vector<int> order_;        // sequences, longest first
  std::vector<int64_t> sorted_;   // their lengths
  int64_t bound_ns_ = 0;
};

LanePacker::LanePacker(const SchemeCost& scheme, std::vector<LaneRun> nodes, std::span<const int64_t> lengths,
                       std::span<const int> members)
    : scheme_(scheme), nodes_(std::move(nodes)), order_(members.begin(), members.end()) {
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  for (const int sequence : order_) sorted_.push_back(lengths[static_cast<size_t>(sequence)]);
  const std::vector<SchemeGroup> group = {{&scheme, 1}};
  bound_ns_ = lower_bound(sorted_, group, FloorTable(sorted_, group))->lower_ns;
  int widest = 1;
  for (const LaneRun& node : nodes_) widest = std::max(widest, node.lanes);
  int power = 1;
  while (2 * power < widest) power *= 2;
  if (widest > 1) node_widths_.push_back(widest);
  for (; power > 1; power /= 2) node_widths_.push_back(power);
}

// With one stage a placement ends when its plan does, so only the best is made a plan of. A goal that is met
// needs no later one; then finer and coarser cuts inside nodes.
LaneDraft LanePacker::run() const {
  std::optional<std::pair<Try, Placement>> best;
  const auto consider = [&](const Try& how) {
    Placement next = place(how);
    const bool met = near(next.end_ns, how.goal_ns) || !next.heeds_goal;
    if (!best || next.end_ns < best->second.end_ns) best.emplace(how, std::move(next));
    return met;
  };
  constexpr int kPart = 4;
  for (const int64_t above : {0, 2, 5, 10, 20, 40, 80, 160, 320}) {
    const int64_t goal_ns = bound_ns_ + bound_ns_ * above / 1000;
    if (consider({.limit_ns = goal_ns / kPart, .goal_ns = goal_ns, .end_ns = goal_ns})) break;
  }
  const int64_t goal_ns = best->first.goal_ns;
  for (const int part : {2 * kPart, 4 * kPart, kPart / 2, 1}) {
    if (near(best->second.end_ns, goal_ns)) break;
    consider({.limit_ns = goal_ns / part, .goal_ns = goal_ns, .end_ns = goal_ns});
  }
  return assemble(std::move(best->second));
}

int LanePacker::lanes_for(int64_t length, const Try& how) const {
  const int fewest = scheme_.fewest_lanes(length);
  const auto most = static_cast<int>(std::min<int64_t>(lanes(), std::max<int64_t>(1, length / 2)));
  int best = 0;  // in a node
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  const auto enough = [&](int count, int64_t limit_ns) {
    if (count < fewest || count > most) return false;
    const int64_t ns = scheme_.lane_ns(length, count);
    if (ns < best_ns) best = count;
    best_ns = std::min(best_ns, ns);
    return ns <= limit_ns;
  };
  if (enough(1, how.limit_ns)) return 1;
  for (auto width = node_widths_.rbegin(); width != node_widths_.rend(); ++width) {
    if (enough(*width, how.limit_ns)) return *width;
  }
  if (best_ns <= how.goal_ns) return best;
  // Where lanes only divide the time, so many are needed at least.
  const int64_t divided = best == 0 ? fewest : best * (best_ns / std::max<int64_t>(1, how.goal_ns));
  const int widest = node_widths_.empty() ? 1 : node_widths_.front();
  int64_t last_ns = std::numeric_limits<int64_t>::max() / 2;
  for (int count = std::max(widest + 1, static_cast<int>(std::min<int64_t>(divided, most))); count <= most;
       ++count) {
    if (enough(count, how.goal_ns)) return count;
    const int64_t ns = scheme_.lane_ns(length, count);
    if (ns > last_ns + last_ns / 256) break;  // only rising from here on
    last_ns = std::min(last_ns, ns);
  }
  return best;
}

// By lanes, the most first.
std::vector<Width> LanePacker::widths(const Try& how) const {
  std::vector<Width> widths;
  int count = 0;
  for (int place = 0; place < static_cast<int>(order_.size()); ++place) {
    const bool again = place > 0 && (count == 1 || length(place) == length(place - 1));
    if (!again) count = lanes_for(length(place), how);
    auto width = std::find_if(widths.begin(), widths.end(), [&](const Width& w) { return w.lanes == count; });
    if (width == widths.end()) width = widths.insert(widths.end(), Width{.lanes = count, .members = {}});
    width->members.push_back(place);
  }
  std::sort(widths.begin(), widths.end(), [](const Width& a, const Width& b) { return a.lanes > b.lanes; });
  return widths;
}

// Rings of more lanes than a node has. Where they lie in several layers, columns of equal height leave an
// even floor behind; else each lies where it can begin first.
void LanePacker::place_wide(const Width& width, const Try& how, LaneFloor& floor, LaneDraft& draft) const {
  const auto rings = static_cast<int>(width.members.size());
  const int layers = (rings + lanes() / width.lanes - 1) / (lanes() / width.lanes);
  if (layers > 1) {
    std::vector<LaneRun> columns;
    for (int c = 0; c < (rings + layers - 1) / layers; ++c) columns.push_back({c * width.lanes, width.lanes});
    place_rings(width, columns, how, floor, draft);
    return;
  }
  for (const int place : width.members) {
    const LaneRun run = floor.soonest(width.lanes);
    floor.raise(run, floor.end_ns(run) + scheme_.lane_ns(length(place), width.lanes));
    draft.append({.first_lane = run.first, .lanes = run.lanes, .sequences = {sequence(place)}});
  }
}

// Rings inside nodes, on runs aligned to their width.
void LanePacker::place_aligned(const Width& width, const Try& how, LaneFloor& floor, LaneDraft& draft) const {
  std::vector<LaneRun> runs;
  for (const LaneRun& node : nodes_) {
    for (int lane = 0; lane + width.lanes <= node.lanes; lane += width.lanes) {
      runs.push_back({node.first + lane, width.lanes});
    }
  }
  place_rings(width, runs, how, floor, draft);
}

// The longest first, each on the run that is free soonest. Runs whose lanes are not free at once would leave
// some idle: they wait for narrower rings as long as others end by the goal.
void LanePacker::place_rings(const Width& width, std::span<const LaneRun> runs, const Try& how,
                             LaneFloor& floor, LaneDraft& draft) const {
  SlotQueue even;
  SlotQueue uneven;
  for (const LaneRun& run : runs) {
    const Slot slot{.end_ns = floor.end_ns(run), .first_lane = run.first};
    const bool idle = floor.idle_ns(run) > run.lanes * scheme_.micro_batch_ns();
    (idle ? uneven : even).push(slot);
  }
  for (const int place : width.members) {
    const cost::Work more = SchemeCost::fullest_share(length(place), width.lanes);
    const int64_t alone_ns = scheme_.unit_ns(more, width.lanes);
    const bool wait = !even.empty() && (uneven.empty() || even.top().end_ns + alone_ns <= how.end_ns ||
                                        even.top().end_ns <= uneven.top().end_ns);
    SlotQueue& queue = wait ? even : uneven;
    Slot slot = queue.top();
    queue.pop();
    put(place, more, alone_ns, width.lanes, slot, draft);
    even.push(slot);
  }
  for (; !even.empty(); even.pop()) {
    if (even.top().unit >= 0) floor.raise({even.top().first_lane, width.lanes}, even.top().end_ns);
  }
}

// Into the last ring of the slot if it has room, else behind it.
void LanePacker::put(int place, const cost::Work& more, int64_t alone_ns, int width, Slot& slot,
                     LaneDraft& draft) const {
  cost::Work both = slot.work;
  both += more;
  if (slot.unit >= 0 && both.tokens <= scheme_.lane_max_len_tokens()) {
    draft.units[static_cast<size_t>(slot.unit)].sequences.push_back(sequence(place));
    slot.work = both;
    slot.end_ns = slot.start_ns + scheme_.unit_ns(both, width);
    return;
  }
  slot.unit = draft.append({.first_lane = slot.first_lane, .lanes = width, .sequences = {sequence(place)}});
  slot.work = more;
  slot.start_ns = slot.end_ns;
  slot.end_ns += alone_ns;
}

void LanePacker::place_singles(const Width& width, LaneFloor& floor, Placement& placement) const {
  struct LaneEnd {
    int64_t end_ns = 0;
    int lane = 0;
    int64_t work_end_ns = 0;  // without the constants of micro-batches
    int64_t tokens = 0;
    bool operator>(const LaneEnd& other) const {
      return std::pair(end_ns, lane) > std::pair(other.end_ns, other.lane);
    }
  };
  std::vector<LaneEnd> ends;
  for (int lane = 0; lane < lanes(); ++lane) {
    ends.push_back({.end_ns = floor.end_ns(lane), .lane = lane, .work_end_ns = floor.end_ns(lane)});
  }
  std::make_heap(ends.begin(), ends.end(), std::greater<>());
  const int64_t capacity = std::max<int64_t>(1, scheme_.lane_max_len_tokens());
  for (const int place : width.members) {
    std::pop_heap(ends.begin(), ends.end(), std::greater<>());
    LaneEnd& end = ends.back();
    const int64_t tokens = length(place);
    const int64_t work_ns = scheme_.lane_ns(tokens, 1) - scheme_.micro_batch_ns();
    placement.singles[static_cast<size_t>(end.lane)].push_back(
        {.sequence = order_[static_cast<size_t>(place)], .tokens = tokens, .work_ns = work_ns});
    end.tokens += tokens;
    end.work_end_ns += work_ns;
    end.end_ns = end.work_end_ns + (end.tokens + capacity - 1) / capacity * scheme_.micro_batch_ns();
    std::push_heap(ends.begin(), ends.end(), std::greater<>());
  }
  for (const LaneEnd& end : ends) floor.raise({end.lane, 1}, end.end_ns);
}

Placement LanePacker::place(const Try& how) const {
  Placement placement(lanes());
  LaneFloor floor(lanes());
  const int widest = node_widths_.empty() ? 1 : node_widths_.front();
  for (const Width& width : widths(how)) {
    if (width.lanes > widest) {
      const int fewest = scheme_.fewest_lanes(length(width.members.front()));
      placement.heeds_goal = placement.heeds_goal || width.lanes > fewest;
      place_wide(width, how, floor, placement.draft);
    } else if (width.lanes > 1) {
      place_aligned(width, how, floor, placement.draft);
    } else {
      place_singles(width, floor, placement);
    }
  }
  placement.end_ns = floor.end_ns({0, lanes()});
  return placement;
}

// A lane's own sequences, in as few even micro-batches as hold them.
Bins LanePacker::micro_batches(std::span<const PackItem> items) const {
  const int64_t capacity = scheme_.lane_max_len_tokens();
  int64_t tokens = 0;
  for (const PackItem& item : items) tokens += item.tokens;
  const int64_t count = std::min((tokens + capacity - 1) / capacity, static_cast<int64_t>(items.size()));
  if (count == 1) {
    Bins all(1, std::vector<int>(items.size()));
    std::iota(all.front().begin(), all.front().end(), 0);
    return all;
  }
  if (auto even = balance(items, static_cast<int>(count), capacity)) return std::move(*even);
  return first_fit_decreasing(items, capacity);
}

// Behind the rings.
LaneDraft LanePacker::assemble(Placement placement) const {
  LaneDraft draft = std::move(placement.draft);
  for (size_t l = 0; l < placement.singles.size(); ++l) {
    const std::vector<PackItem>& items = placement.singles[l];
    if (items.empty()) continue;
    for (const std::vector<int>& bin : micro_batches(items)) {
      strategy::Unit unit{.first_lane = static_cast<int>(l), .lanes = 1, .sequences = {}};
      for (const int item : bin) {
        unit.sequences.push_back(
            {items[static_cast<size_t>(item)].sequence, items[static_cast<size_t>(item)].tokens});
      }
      draft.append(std::move(unit));
    }
  }
  return draft;
}

}  // namespace

PackedPipeline pack_lanes(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                          const cost::CostModel& cost, std::span<const int64_t> lengths,
                          std::span<const int> members) {
  SLUICE_ASSERT(pipeline.scheme.cp > 1, "a pipeline of one lane is packed by pack()");
  const LaneDrafting drafting(pipeline, scheme, cost);
  std::vector<LaneRun> nodes = node_runs(pipeline, cost.options().gpus_per_node);
  StagedPack packed{.draft = LaneDraft(0), .makespan_ns = 0};
  if (pipeline.scheme.pp == 1) {
    packed.draft = LanePacker(scheme, std::move(nodes), lengths, members).run();
    packed.makespan_ns = drafting.makespan_ns(packed.draft);
  } else {
    packed = pack_staged_lanes(scheme, std::move(nodes), lengths, members, drafting);
  }
  return {.plan = drafting.plan(std::move(packed.draft)), .makespan_ns = packed.makespan_ns};
}

}  // namespace sluice::plan
