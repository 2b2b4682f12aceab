#include "plan/lane_stages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "base/units.h"
#include "plan/precision.h"
#include "plan/stage_widths.h"

namespace sluice::plan {
namespace {

// What a layout is laid out for.
struct Deadline {
  int64_t end_ns = 0;  // when all is to end
  // Rings that take longer to pass the stages share lanes as long as they end in time: what such a ring
  // leaves idle it leaves idle once.
  int64_t long_ns = 0;
  // By lane, how much later than its columns are high it has ended so far.
  std::vector<int64_t> late_ns;
};

// Two columns a lane, [0, lanes) of what runs in the front half and [lanes, 2·lanes) of the back half, each a
// stack whose first unit lies in the middle of the step.
struct Layout {
  explicit Layout(int lane_count)
      : lanes(lane_count), stacks(2 * static_cast<size_t>(lane_count)), height_ns(stacks.size(), 0) {}
  std::vector<int>& stack(int column) { return stacks[static_cast<size_t>(column)]; }
  // Of both columns of a lane.
  int64_t lane_height(int lane) const { return height(lane) + height(lane + lanes); }
  int64_t height(int column) const { return height_ns[static_cast<size_t>(column)]; }
  int64_t highest(int column, int width) const {
    const auto first = height_ns.begin() + column;
    return *std::max_element(first, first + width);
  }
  void raise(int column, int width, int64_t ns) { std::fill_n(height_ns.begin() + column, width, ns); }
  int push(int column, int width, std::vector<strategy::UnitSequence> sequences) {
    const int unit = static_cast<int>(units.size());
    units.push_back({.first_lane = column % lanes, .lanes = width, .sequences = std::move(sequences)});
    for (int at = column; at < column + width; ++at) stack(at).push_back(unit);
    return unit;
  }

  int lanes;
  std::vector<strategy::Unit> units;
  std::vector<std::vector<int>> stacks;
  std::vector<int64_t> height_ns;
};

// A run of columns while rings of its width are put on it, and the last of them, which may take up more.
struct OpenColumn {
  int column = 0;
  int unit = -1;
  int64_t start_ns = 0;  // of that unit
  cost::Work work;       // of each of its lanes
};

// The same lanes in both halves.
struct Pair {
  OpenColumn front;
  OpenColumn back;
  int64_t long_ns = 0;  // of rings that take long to pass the stages
};

class StagedPacker {
 public:
  explicit StagedPacker(Packing& packing) : packing_(packing), scheme_(packing.scheme), widths_(packing) {}
  TimedUnits run();

 private:
  int lanes() const { return packing_.lanes(); }
  int64_t length(int place) const { return packing_.length(place); }

  Layout pack(const Deadline& deadline) const;
  std::vector<strategy::Unit> in_order(Layout layout) const;
  void add_lateness(const Deadline& deadline, Layout& layout) const;
  // When lanes end.
  struct Ends {
    int64_t last_ns = 0;
    int64_t mean_ns = 0;
    int64_t hope_ns() const { return (last_ns + mean_ns) / 2; }
    bool operator==(const Ends&) const = default;
  };
  Ends score(Deadline& deadline);
  std::vector<Pair> pairs_of(int width) const;
  void place_rings(int width, std::span<const int> members, const Deadline& deadline, Layout& layout) const;
  std::optional<size_t> fullest_in_time(std::span<const Pair> pairs, const SchemeCost::Passage& passage,
                                        const Deadline& deadline) const;
  bool join(int place, int width, const Deadline& deadline, OpenColumn& open, Layout& layout) const;
  void begin(int place, int width, const SchemeCost::Passage& passage, const Deadline& deadline,
             OpenColumn& open, Layout& layout) const;
  void place_singles(std::span<const int> members, const Deadline& deadline, Layout& layout) const;
  std::vector<int64_t> unit_sizes(std::span<const int> members, const Deadline& deadline) const;
  void cut_singles(int column, std::span<const int> members, const Deadline& deadline, Layout& layout) const;

  Packing& packing_;
  const SchemeCost& scheme_;
  StageWidths widths_;
  std::optional<TimedUnits> best_;
};

std::vector<Pair> StagedPacker::pairs_of(int width) const {
  std::vector<Pair> pairs;
  const auto add = [&](int lane) {
    pairs.push_back({.front = {.column = lane}, .back = {.column = lane + lanes()}});
  };
  if (width > packing_.node_lanes()) {
    for (int lane = 0; lane + width <= lanes(); lane += width) add(lane);
    return pairs;
  }
  for (const LaneRun& node : packing_.nodes) {
    for (int lane = 0; lane + width <= node.lanes; lane += width) add(node.first + lane);
  }
  return pairs;
}

// The longest first, each on the lanes that have least, to the lower half.
void StagedPacker::place_rings(int width, std::span<const int> members, const Deadline& deadline,
                               Layout& layout) const {
  std::vector<Pair> pairs = pairs_of(width);
  using Height = std::pair<int64_t, size_t>;  // and the pair
  std::priority_queue<Height, std::vector<Height>, std::greater<>> lowest;
  const auto height_ns = [&](size_t pair) {
    return layout.highest(pairs[pair].front.column, width) + layout.highest(pairs[pair].back.column, width);
  };
  for (size_t pair = 0; pair < pairs.size(); ++pair) lowest.emplace(height_ns(pair), pair);
  for (const int place : members) {
    const SchemeCost::Passage passage = widths_.passage(place, width);
    const bool takes_long = width >= packing_.node_lanes() && passage.path_ns() > deadline.long_ns;
    std::optional<size_t> to = takes_long ? fullest_in_time(pairs, passage, deadline) : std::nullopt;
    while (!to) {  // what is noted of a pair may be out of date
      const auto [noted_ns, pair] = lowest.top();
      if (noted_ns == height_ns(pair)) to = pair;
      lowest.pop();
      lowest.emplace(height_ns(pair), pair);
    }
    Pair& pair = pairs[*to];
    if (takes_long) pair.long_ns += passage.unit_ns;
    const bool in_front = layout.highest(pair.front.column, width) <= layout.highest(pair.back.column, width);
    OpenColumn& open = in_front ? pair.front : pair.back;
    if (!join(place, width, deadline, open, layout)) begin(place, width, passage, deadline, open, layout);
  }
}

// Of the lanes that have rings which take long, those with most on which one more still ends in time: they
// pass the stages one behind the other.
std::optional<size_t> StagedPacker::fullest_in_time(std::span<const Pair> pairs,
                                                    const SchemeCost::Passage& passage,
                                                    const Deadline& deadline) const {
  std::optional<size_t> fullest;
  for (size_t pair = 0; pair < pairs.size(); ++pair) {
    const int64_t behind_ns = widths_.through_last_ns(pairs[pair].long_ns);
    if (behind_ns == 0 || passage.path_ns() + behind_ns > deadline.end_ns) continue;
    if (!fullest || pairs[pair].long_ns > pairs[*fullest].long_ns) fullest = pair;
  }
  return fullest;
}

// Into the last ring of the columns, if that stays small.
bool StagedPacker::join(int place, int width, const Deadline& deadline, OpenColumn& open,
                        Layout& layout) const {
  if (open.unit < 0) return false;
  cost::Work both = open.work;
  both += scheme_.share_of(length(place), width);
  if (both.tokens > widths_.unit_tokens()) return false;
  const int64_t both_ns = scheme_.unit_ns(both, width);
  if (both_ns > widths_.most_ns(deadline.end_ns)) return false;
  layout.units[static_cast<size_t>(open.unit)].sequences.push_back(packing_.sequence(place));
  open.work = both;
  layout.raise(open.column, width, open.start_ns + both_ns);
  return true;
}

// A new ring. The first of its lanes shifts their middle to where it leaves room enough on either side.
void StagedPacker::begin(int place, int width, const SchemeCost::Passage& passage, const Deadline& deadline,
                         OpenColumn& open, Layout& layout) const {
  const int lane = open.column % lanes();
  bool first = true;
  for (int at = lane; at < lane + width; ++at) {
    first = first && layout.stack(at).empty() && layout.stack(at + lanes()).empty();
  }
  open.work = scheme_.share_of(length(place), width);
  const Room room = widths_.room(passage, deadline.end_ns);
  if (first) {
    layout.raise(lane, width, deadline.end_ns / 2 - room.before_ns);
    layout.raise(lane + lanes(), width, deadline.end_ns / 2 - room.after_ns);
  } else {
    const int64_t outside_ns = open.column < lanes() ? room.before_ns : room.after_ns;
    const int64_t on_top_ns = layout.highest(open.column, width) + passage.unit_ns;
    layout.raise(open.column, width, std::max(on_top_ns, deadline.end_ns / 2 - outside_ns));
  }
  open.start_ns = layout.height(open.column) - passage.unit_ns;
  open.unit = layout.push(open.column, width, {packing_.sequence(place)});
}

// The most work first, each to the lowest column.
void StagedPacker::place_singles(std::span<const int> members, const Deadline& deadline,
                                 Layout& layout) const {
  using Height = std::pair<int64_t, int>;  // and its column
  std::vector<Height> heights;
  for (int column = 0; column < 2 * lanes(); ++column) heights.emplace_back(layout.height(column), column);
  std::make_heap(heights.begin(), heights.end(), std::greater<>());
  std::vector<std::vector<int>> of_column(heights.size());
  for (const int place : members) {
    std::pop_heap(heights.begin(), heights.end(), std::greater<>());
    auto& [height_ns, column] = heights.back();
    of_column[static_cast<size_t>(column)].push_back(place);
    height_ns += widths_.work_ns(place) + scheme_.micro_batch_ns() * length(place) / widths_.unit_tokens();
    layout.raise(column, 1, height_ns);
    std::push_heap(heights.begin(), heights.end(), std::greater<>());
  }
  for (int column = 0; column < 2 * lanes(); ++column) {
    const std::vector<int>& own = of_column[static_cast<size_t>(column)];
    if (!own.empty()) cut_singles(column, own, deadline, layout);
  }
}

// As large as they may be, and outside them each half as large as the one before, which fill and drain the
// stages, down to where it is two constants. Descending.
std::vector<int64_t> StagedPacker::unit_sizes(std::span<const int> members, const Deadline& deadline) const {
  int64_t rest_ns = 0;
  int64_t tokens = 0;
  for (const int place : members) {
    rest_ns += widths_.work_ns(place);
    tokens += length(place);
  }
  const auto by_tokens_ns =
      static_cast<int64_t>(cost::Wide{widths_.unit_tokens()} * rest_ns / std::max<int64_t>(1, tokens));
  const int64_t full_ns = std::max<int64_t>(1, std::min(widths_.most_ns(deadline.end_ns), by_tokens_ns));
  std::vector<int64_t> sizes_ns;
  for (int64_t ns = 2 * scheme_.micro_batch_ns(); ns < full_ns && ns <= rest_ns; ns = 2 * ns + 1) {
    sizes_ns.push_back(ns);
    rest_ns -= ns;
  }
  const int64_t full = (rest_ns + full_ns - 1) / full_ns;
  for (int64_t i = 0; i < full; ++i) sizes_ns.push_back(rest_ns / full);
  if (sizes_ns.empty()) sizes_ns.push_back(0);
  std::sort(sizes_ns.begin(), sizes_ns.end(), std::greater<>());
  if (sizes_ns.size() > members.size()) sizes_ns.resize(members.size());
  return sizes_ns;
}

// Each sequence to the unit that lacks most, then the largest unit inside.
void StagedPacker::cut_singles(int column, std::span<const int> members, const Deadline& deadline,
                               Layout& layout) const {
  struct Filling {
    int64_t lacks_ns = 0;
    int64_t work_ns = 0;
    int64_t tokens = 0;
    std::vector<strategy::UnitSequence> sequences;
  };
  std::vector<Filling> units;
  for (const int64_t ns : unit_sizes(members, deadline)) units.push_back({.lacks_ns = ns, .sequences = {}});
  for (const int place : members) {
    Filling* into = nullptr;
    for (Filling& unit : units) {
      const bool fits = unit.tokens + length(place) <= scheme_.lane_max_len_tokens();
      if (fits && (into == nullptr || unit.lacks_ns > into->lacks_ns)) into = &unit;
    }
    if (into == nullptr) into = &units.emplace_back();
    into->lacks_ns -= widths_.work_ns(place);
    into->work_ns += widths_.work_ns(place);
    into->tokens += length(place);
    into->sequences.push_back(packing_.sequence(place));
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const Filling& a, const Filling& b) { return a.work_ns > b.work_ns; });
  for (Filling& unit : units) {
    if (!unit.sequences.empty()) layout.push(column, 1, std::move(unit.sequences));
  }
}

Layout StagedPacker::pack(const Deadline& deadline) const {
  std::vector<std::vector<int>> by_width(static_cast<size_t>(lanes()) + 1);
  int width = 0;
  for (int place = 0; place < static_cast<int>(packing_.lengths.size()); ++place) {
    const bool again = place > 0 && (width == 1 || length(place) == length(place - 1));
    if (!again) width = widths_.width_of(place, deadline.end_ns);
    by_width[static_cast<size_t>(width)].push_back(place);
  }
  Layout layout(lanes());
  for (int w = lanes(); w > 0; --w) {
    const std::vector<int>& members = by_width[static_cast<size_t>(w)];
    if (w + 1 == std::max(2, packing_.node_lanes())) add_lateness(deadline, layout);
    if (w == 1) {
      place_singles(members, deadline, layout);
    } else if (!members.empty()) {
      place_rings(w, members, deadline, layout);
    }
  }
  return layout;
}

// The front columns from the outside in, then the back ones from the inside out.
std::vector<strategy::Unit> StagedPacker::in_order(Layout layout) const {
  std::vector<std::vector<int>> by_lane;
  for (int lane = 0; lane < lanes(); ++lane) {
    std::vector<int>& units = by_lane.emplace_back(layout.stack(lane).rbegin(), layout.stack(lane).rend());
    const std::vector<int>& back = layout.stack(lane + lanes());
    units.insert(units.end(), back.begin(), back.end());
  }
  return strategy::in_injection_order(std::move(layout.units), by_lane);
}

// Long rings stay where they are, shorter work makes up for what they cost.
void StagedPacker::add_lateness(const Deadline& deadline, Layout& layout) const {
  for (int lane = 0; lane < static_cast<int>(deadline.late_ns.size()); ++lane) {
    const int64_t late_ns = deadline.late_ns[static_cast<size_t>(lane)] / 2;
    for (const int column : {lane, lane + lanes()}) layout.raise(column, 1, layout.height(column) + late_ns);
  }
}

// Packs and scores, and learns of each lane how late it ends.
StagedPacker::Ends StagedPacker::score(Deadline& deadline) {
  deadline.late_ns.resize(static_cast<size_t>(lanes()), 0);
  Layout layout = pack(deadline);
  for (int lane = 0; lane < lanes(); ++lane)
    deadline.late_ns[static_cast<size_t>(lane)] -= layout.lane_height(lane);
  std::vector<strategy::Unit> units = in_order(std::move(layout));
  packing_.timer.makespan_ns(units);
  const std::vector<int64_t>& ends_ns = packing_.timer.ends_ns();
  for (size_t lane = 0; lane < ends_ns.size(); ++lane) deadline.late_ns[lane] += ends_ns[lane];
  const Ends ends{.last_ns = std::ranges::max(ends_ns),
                  .mean_ns = std::accumulate(ends_ns.begin(), ends_ns.end(), int64_t{0}) / lanes()};
  if (!best_ || ends.last_ns < best_->makespan_ns) best_ = TimedUnits{std::move(units), ends.last_ns};
  return ends;
}

// Tries are ranked by the hope that dealing again makes up for half of what the last lane ends later than the
// mean, and are dealt again if the mean is better than the best plan.
TimedUnits StagedPacker::run() {
  constexpr size_t kAgain = 2;
  const Seeds seeds = packing_.options.seeds;
  const int64_t ideal_ns = widths_.ideal_ns();
  std::vector<std::pair<Ends, Deadline>> tries;
  // From a little later than ideal to half as late again; long rings together, and not.
  for (int64_t rise_ns = 1 + ideal_ns / kFirstRisePart; rise_ns < ideal_ns; rise_ns *= 4) {
    const int64_t end_ns = ideal_ns + rise_ns;
    for (const bool together : {true, false}) {
      if (together && !seeds.has(Seed::kDeadlines)) continue;
      Deadline deadline{
          .end_ns = end_ns, .long_ns = together ? widths_.most_ns(end_ns) : end_ns, .late_ns = {}};
      const Ends ends = score(deadline);
      if (best_->makespan_ns - ideal_ns < ideal_ns / kNegligiblePart) return std::move(*best_);
      const bool same = !tries.empty() && tries.back().first == ends;
      if (!same) tries.emplace_back(ends, std::move(deadline));
    }
  }
  std::stable_sort(tries.begin(), tries.end(),
                   [](const auto& a, const auto& b) { return a.first.hope_ns() < b.first.hope_ns(); });
  tries.resize(std::min(tries.size(), seeds.has(Seed::kDeadlines) ? kAgain : 0));
  for (auto& [ends, deadline] : tries) {
    if (ends.mean_ns < best_->makespan_ns) score(deadline);
  }
  return std::move(*best_);
}

}  // namespace

std::optional<TimedUnits> pack_staged_lanes(Packing& packing) { return StagedPacker(packing).run(); }

}  // namespace sluice::plan
