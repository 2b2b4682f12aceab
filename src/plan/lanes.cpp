#include "plan/lanes.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "plan/bins.h"
#include "plan/bound.h"
#include "plan/lane_widths.h"
#include "plan/precision.h"

namespace sluice::plan {
namespace {

constexpr int kMostShifts = 30;  // of widths, in a search
// Of the goal, that sequences inside nodes may take at most: finer cuts cost more than they even out.
constexpr int64_t kFinestPart = 8;

// Sequences that take as many lanes.
struct Width {
  int lanes = 1;
  std::vector<int> members;  // places, longest first
};

// A run of lanes while rings of its width are put on it, and the last of them, which may take up more.
struct OpenRun {
  int64_t end_ns = 0;
  int first_lane = 0;
  int unit = -1;
  int64_t start_ns = 0;  // of that unit
  cost::Work work;       // of each of its lanes
  bool operator>(const OpenRun& other) const {
    return std::pair(end_ns, first_lane) > std::pair(other.end_ns, other.first_lane);
  }
};

using OpenRuns = std::priority_queue<OpenRun, std::vector<OpenRun>, std::greater<>>;  // the soonest first

// Units before the sequences on one lane are in micro-batches.
struct Placement {
  explicit Placement(int lanes)
      : singles(static_cast<size_t>(lanes)), joined(static_cast<size_t>(lanes), -1) {}
  std::vector<strategy::Unit> rings;           // each behind what its lanes have
  std::vector<std::vector<PackItem>> singles;  // by lane
  std::vector<int> joined;                     // by lane, the ring that takes them up, or -1
  int64_t end_ns = 0;
  bool heeds_goal = false;  // some ring has more lanes than memory asks for, to reach the goal
};

class LanePacker {
 public:
  explicit LanePacker(const Packing& packing) : packing_(packing), scheme_(packing.scheme), widths_(packing) {
    const std::vector<SchemeGroup> group = {{&scheme_, 1}};
    bound_ns_ = lower_bound(packing.lengths, group, FloorTable(packing.lengths, group))->lower_ns;
  }
  // In the order of injection; nothing where none ends below the options' limit.
  std::optional<std::vector<strategy::Unit>> run() const;

 private:
  int lanes() const { return packing_.lanes(); }
  int64_t length(int place) const { return packing_.length(place); }
  // Whether it is no use to look for less.
  static bool near(int64_t makespan_ns, int64_t goal_ns) {
    return makespan_ns - goal_ns <= goal_ns / kNegligiblePart;
  }

  static std::vector<Width> by_width(std::span<const int> widths);
  // Given up where it would end at `limit_ns` or later: it says so and is no plan.
  Placement place(std::span<const int> widths, int64_t limit_ns) const;
  void place_wide(const Width& width, LaneFloor& floor, Placement& placement) const;
  void place_aligned(const Width& width, LaneFloor& floor, Placement& placement) const;
  void place_rings(const Width& width, std::span<const LaneRun> runs, LaneFloor& floor,
                   Placement& placement) const;
  void place_singles(const Width& width, const LaneFloor& floor, Placement& placement) const;
  void deal_singles(const Width& width, const LaneFloor& floor, Placement& placement) const;
  void find_last_rings(Placement& placement) const;
  static bool joins(const Placement& placement, int lane) {
    return placement.joined[static_cast<size_t>(lane)] >= 0;
  }
  int64_t room_in_ring(const Placement& placement, int lane) const;
  void put(int place, int width, OpenRun& open, Placement& placement) const;
  std::vector<strategy::Unit> assemble(Placement placement) const;

  const Packing& packing_;
  const SchemeCost& scheme_;
  LaneWidths widths_;
  int64_t bound_ns_ = 0;
};

// With one stage a placement ends when its plan does, so only the best is made a plan of. A goal that is met
// needs no later one; then finer and coarser cuts inside nodes.
std::optional<std::vector<strategy::Unit>> LanePacker::run() const {
  const auto& [rule, enough_ns, seeds, below_ns] = packing_.options;
  std::vector<int> best_widths;
  std::optional<Placement> best;
  std::vector<std::vector<int>> tried;
  bool heeds_goal = false;
  int64_t goal_ns = bound_ns_;
  const auto best_ns = [&, below = below_ns] { return best ? best->end_ns : below; };
  // Whether there was something to try.
  const auto consider = [&](std::vector<int> widths) {
    if (std::ranges::find(tried, widths) != tried.end()) return false;
    Placement next = place(widths, best_ns());
    tried.push_back(widths);
    heeds_goal = next.heeds_goal;
    if (next.end_ns >= best_ns()) return true;
    best = std::move(next);
    best_widths = std::move(widths);
    return true;
  };
  const auto enough = [&, goal = enough_ns] { return best_ns() <= goal || near(best_ns(), bound_ns_); };
  const int64_t first_rise_ns = 1 + bound_ns_ / kFirstRisePart;
  for (int64_t rise_ns = 0; rise_ns <= bound_ns_ / 2; rise_ns = std::max(2 * rise_ns, first_rise_ns)) {
    goal_ns = bound_ns_ + rise_ns;
    consider(widths_.choose({.in_node_ns = goal_ns / 2, .goal_ns = goal_ns}));
    if (near(best_ns(), goal_ns) || !heeds_goal || enough()) break;
  }
  const auto cut_inside_to = [&](int64_t limit_ns) {
    if (!enough() && seeds.has(Seed::kLimits))
      consider(widths_.choose({.in_node_ns = limit_ns, .goal_ns = goal_ns}));
  };
  for (int64_t part = 1; part <= kFinestPart; part *= 2) cut_inside_to(goal_ns / part);
  cut_inside_to(std::numeric_limits<int64_t>::max());
  if (!best) return std::nullopt;
  if (rule == PackRule::kThorough && seeds.has(Seed::kShifts)) {
    int tries = kMostShifts;
    const auto shorter = [&](std::vector<int> widths) {
      const int64_t before_ns = best->end_ns;
      if (consider(std::move(widths))) --tries;
      return tries <= 0 || best->end_ns < before_ns;
    };
    while (tries > 0 && !enough() && widths_.shift(best_widths, shorter)) {
    }
  }
  return assemble(std::move(*best));
}

// By lanes, the most first.
std::vector<Width> LanePacker::by_width(std::span<const int> widths) {
  std::vector<Width> classes;
  for (int place = 0; place < static_cast<int>(widths.size()); ++place) {
    const int lanes = widths[static_cast<size_t>(place)];
    auto at = std::ranges::find(classes, lanes, &Width::lanes);
    if (at == classes.end()) at = classes.insert(classes.end(), Width{.lanes = lanes, .members = {}});
    at->members.push_back(place);
  }
  std::ranges::sort(classes, std::greater<>(), &Width::lanes);
  return classes;
}

// Rings of more lanes than a node has, each where it can begin first.
void LanePacker::place_wide(const Width& width, LaneFloor& floor, Placement& placement) const {
  for (const int place : width.members) {
    const LaneRun run = floor.soonest(width.lanes);
    floor.raise(run, floor.end_ns(run) + widths_.lane_ns(place, width.lanes));
    placement.rings.push_back(
        {.first_lane = run.first, .lanes = run.lanes, .sequences = {packing_.sequence(place)}});
  }
}

// Rings inside nodes, on runs aligned to their width.
void LanePacker::place_aligned(const Width& width, LaneFloor& floor, Placement& placement) const {
  std::vector<LaneRun> runs;
  for (const LaneRun& node : packing_.nodes) {
    for (int lane = 0; lane + width.lanes <= node.lanes; lane += width.lanes) {
      runs.push_back({node.first + lane, width.lanes});
    }
  }
  place_rings(width, runs, floor, placement);
}

// The longest first, each on the run that is free soonest.
void LanePacker::place_rings(const Width& width, std::span<const LaneRun> runs, LaneFloor& floor,
                             Placement& placement) const {
  OpenRuns open;
  for (const LaneRun& run : runs) open.push({.end_ns = floor.end_ns(run), .first_lane = run.first});
  for (const int place : width.members) {
    OpenRun soonest = open.top();
    open.pop();
    put(place, width.lanes, soonest, placement);
    open.push(soonest);
  }
  for (; !open.empty(); open.pop()) {
    if (open.top().unit >= 0) floor.raise({open.top().first_lane, width.lanes}, open.top().end_ns);
  }
}

// Into the last ring of the run if it has room, else behind it.
void LanePacker::put(int place, int width, OpenRun& open, Placement& placement) const {
  const cost::Work more = scheme_.share_of(length(place), width);
  cost::Work both = open.work;
  both += more;
  if (open.unit >= 0 && both.tokens <= scheme_.lane_max_len_tokens()) {
    placement.rings[static_cast<size_t>(open.unit)].sequences.push_back(packing_.sequence(place));
    open.work = both;
    open.end_ns = open.start_ns + scheme_.unit_ns(both, width);
    return;
  }
  open.unit = static_cast<int>(placement.rings.size());
  placement.rings.push_back(
      {.first_lane = open.first_lane, .lanes = width, .sequences = {packing_.sequence(place)}});
  open.work = more;
  open.start_ns = open.end_ns;
  open.end_ns += widths_.lane_ns(place, width);
}

// The rings that are the last of all their lanes can take up what these run alone, and save its constant.
// Units that exchange heads don't: they would have to cut it.
void LanePacker::find_last_rings(Placement& placement) const {
  const std::vector<std::vector<int>> by_lane = strategy::units_by_lane(placement.rings, lanes());
  std::vector<int> last_on(placement.rings.size(), 0);
  for (const std::vector<int>& rings : by_lane) {
    if (!rings.empty()) ++last_on[static_cast<size_t>(rings.back())];
  }
  for (size_t lane = 0; lane < by_lane.size(); ++lane) {
    if (by_lane[lane].empty()) continue;
    const auto ring = static_cast<size_t>(by_lane[lane].back());
    const strategy::Unit& last = placement.rings[ring];
    if (last_on[ring] != last.lanes) continue;
    cost::Work work;
    for (const strategy::UnitSequence& sequence : last.sequences)
      work += scheme_.share_of(sequence.length_tokens, last.lanes);
    if (scheme_.takes_ring(work, last.lanes)) placement.joined[lane] = by_lane[lane].back();
  }
}

// The most work first, each to the lane that ends first.
void LanePacker::deal_singles(const Width& width, const LaneFloor& floor, Placement& placement) const {
  struct LaneEnd {
    int64_t end_ns = 0;
    int lane = 0;
    int64_t work_end_ns = 0;  // without the constants of micro-batches
    int64_t tokens = 0;       // beyond what a ring takes up
    bool operator>(const LaneEnd& other) const {
      return std::pair(end_ns, lane) > std::pair(other.end_ns, other.lane);
    }
  };
  const int64_t capacity = std::max<int64_t>(1, scheme_.lane_max_len_tokens());
  std::vector<LaneEnd> ends;
  for (int lane = 0; lane < lanes(); ++lane) {
    ends.push_back({.end_ns = floor.end_ns(lane), .lane = lane, .work_end_ns = floor.end_ns(lane)});
    if (joins(placement, lane)) ends.back().tokens = -room_in_ring(placement, lane);
  }
  std::make_heap(ends.begin(), ends.end(), std::greater<>());
  for (const int place : width.members) {
    std::pop_heap(ends.begin(), ends.end(), std::greater<>());
    LaneEnd& end = ends.back();
    const int64_t tokens = length(place);
    const int64_t work_ns = widths_.lane_ns(place, 1) - scheme_.micro_batch_ns();
    placement.singles[static_cast<size_t>(end.lane)].push_back(
        {.sequence = packing_.sequence(place).sequence, .tokens = tokens, .work_ns = work_ns});
    end.tokens += tokens;
    end.work_end_ns += work_ns;
    const int64_t micro_batches = (std::max<int64_t>(0, end.tokens) + capacity - 1) / capacity;
    end.end_ns = end.work_end_ns + micro_batches * scheme_.micro_batch_ns();
    std::push_heap(ends.begin(), ends.end(), std::greater<>());
  }
  placement.end_ns = 0;
  for (const LaneEnd& end : ends) placement.end_ns = std::max(placement.end_ns, end.end_ns);
}

// What a ring takes up ends with its slowest lane, so a ring that is too full for one lane takes up nothing.
void LanePacker::place_singles(const Width& width, const LaneFloor& floor, Placement& placement) const {
  if (packing_.options.seeds.has(Seed::kJoined)) find_last_rings(placement);
  for (bool again = true; again;) {
    for (std::vector<PackItem>& items : placement.singles) items.clear();
    deal_singles(width, floor, placement);
    again = false;
    for (int lane = 0; lane < lanes(); ++lane) {
      if (!joins(placement, lane)) continue;
      int64_t tokens = 0;
      for (const PackItem& item : placement.singles[static_cast<size_t>(lane)]) tokens += item.tokens;
      if (tokens <= room_in_ring(placement, lane)) continue;
      const int full = placement.joined[static_cast<size_t>(lane)];
      std::ranges::replace(placement.joined, full, -1);
      again = true;
    }
  }
}

int64_t LanePacker::room_in_ring(const Placement& placement, int lane) const {
  const int ring = placement.joined[static_cast<size_t>(lane)];
  return scheme_.lane_max_len_tokens() - placement.rings[static_cast<size_t>(ring)].tokens_on(lane);
}

Placement LanePacker::place(std::span<const int> widths, int64_t limit_ns) const {
  Placement placement(lanes());
  LaneFloor floor(lanes());
  const int widest = packing_.node_lanes();
  for (const Width& width : by_width(widths)) {
    const bool leaves_node = width.lanes > widest;
    if (leaves_node && width.lanes > scheme_.fewest_lanes(length(width.members.front())))
      placement.heeds_goal = true;
    if (placement.end_ns >= limit_ns) break;
    if (width.lanes == 1) {
      place_singles(width, floor, placement);
      return placement;
    }
    leaves_node ? place_wide(width, floor, placement) : place_aligned(width, floor, placement);
    placement.end_ns = floor.end_ns({0, lanes()});
  }
  return placement;
}

// Behind the rings, each lane's own sequences in as few even micro-batches as hold them.
std::vector<strategy::Unit> LanePacker::assemble(Placement placement) const {
  std::vector<strategy::Unit> units = std::move(placement.rings);
  for (size_t l = 0; l < placement.singles.size(); ++l) {
    const std::vector<PackItem>& items = placement.singles[l];
    if (items.empty()) continue;
    if (placement.joined[l] >= 0) {
      strategy::Unit& ring = units[static_cast<size_t>(placement.joined[l])];
      ring.own.resize(static_cast<size_t>(ring.lanes));
      std::vector<strategy::UnitSequence>& own = ring.own[l - static_cast<size_t>(ring.first_lane)];
      for (const PackItem& item : items) own.push_back({item.sequence, item.tokens});
      continue;
    }
    for (const std::vector<int>& bin : fewest_bins(items, scheme_.lane_max_len_tokens())) {
      strategy::Unit& unit = units.emplace_back(strategy::Unit{.first_lane = static_cast<int>(l)});
      for (const int index : bin) {
        const PackItem& item = items[static_cast<size_t>(index)];
        unit.sequences.push_back({item.sequence, item.tokens});
      }
    }
  }
  return strategy::in_injection_order(std::move(units), lanes());
}

}  // namespace

std::optional<TimedUnits> pack_lanes(Packing& packing) {
  std::optional<std::vector<strategy::Unit>> units = LanePacker(packing).run();
  if (!units) return std::nullopt;
  const int64_t makespan_ns = packing.timer.makespan_ns(*units);
  return TimedUnits{std::move(*units), makespan_ns};
}

}  // namespace sluice::plan
