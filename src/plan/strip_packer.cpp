#include "plan/strip_packer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/bins.h"
#include "plan/level.h"
#include "plan/precision.h"
#include "plan/strip.h"

namespace sluice::plan {
namespace {

using base::kMicro;
using base::kMilli;

// What sequences on several lanes may take of their pass.
constexpr int64_t kMostMilli[] = {kMilli, 850, 700, 550};
// What the first pass may take of an even one.
constexpr int64_t kLongFirstMilli[] = {1'250, 1'500, 1'750};
// The forward's part of a pass is moved by so much, then by half, and half of that.
constexpr int64_t kForwardStepMicro = 4'000;
constexpr int64_t kForwardSteps = 3;
// A trial end that nothing meets is raised by so much more each time.
constexpr int64_t kRiseMilli = 1'600;
// Beyond so many times what the work alone takes, where hardly anything ends, any end is as good.
constexpr int64_t kMostRise = 64;

// Of both, in millionths.
int64_t forward_part(const SchemeCost::Halves& halves) {
  const int64_t both_ns = std::max<int64_t>(1, halves.both_ns());
  return static_cast<int64_t>(cost::Wide{halves.forward_ns} * kMicro / both_ns);
}

// How a trial end is divided, and what sequences may have of it.
struct Shape {
  int passes = 1;
  int64_t first_milli = kMilli;        // what the first takes of an even one
  int64_t forward_micro = kMicro / 2;  // of each
  Trial trial;                         // all but the passes

  Trial of(int64_t end_ns) const {
    Trial of = trial;
    const int64_t first_ns = end_ns / passes * first_milli / kMilli;
    for (int pass = 0; pass < passes; ++pass) {
      const int64_t pass_ns = pass == 0 ? first_ns : (end_ns - first_ns) / (passes - 1);
      const auto forward_ns = static_cast<int64_t>(cost::Wide{pass_ns} * forward_micro / kMicro);
      of.passes.push_back({forward_ns, pass_ns - forward_ns});
    }
    return of;
  }
};

// From the last pass, alternately in front and behind, towards the first in the middle.
Filling peaked(Filling filling, int passes) {
  for (Load& load : filling.loads) load.pass = place_towards_middle(passes - 1 - load.pass, passes);
  return filling;
}

class StripPacker {
 public:
  explicit StripPacker(Packing& packing)
      : packing_(packing), scheme_(packing.scheme), strip_(packing), best_ns_(packing.options.below_ns) {}

  std::optional<TimedUnits> run();

 private:
  static constexpr int64_t kNever = cost::kLongestNs;
  // The least end that was found, and what ends then.
  struct Found {
    int64_t end_ns = kNever;
    Filling filling;
    Shape shape;
  };

  bool enough() const { return best_ns_ <= packing_.options.enough_ns; }
  bool shares() const { return scheme_.scheme().share > 1; }
  void run_stages(const cost::Work& of_lane, int fewest);
  bool run(int passes);
  Found find_together(Shape shape);
  void level_from(Filling filling, const Shape& shape, Found& found);
  void consider_levelled(Found found);
  void consider_apart(Found found);
  bool search(const Shape& shape, Found& found);
  void consider(const Filling& filling);

  Packing& packing_;
  const SchemeCost& scheme_;
  Strip strip_;
  int64_t low_ns_ = 0;         // that no filling ends before
  int64_t forward_micro_ = 0;  // of all work
  int64_t best_ns_;
  std::optional<TimedUnits> best_;
};

std::optional<TimedUnits> StripPacker::run() {
  cost::Work work = scheme_.work_of(packing_.lengths);
  const int64_t room = std::max<int64_t>(1, scheme_.lane_max_len_tokens() * packing_.lanes());
  const auto fewest = static_cast<int>(shares() ? std::max<int64_t>(1, (work.tokens + room - 1) / room) : 1);
  work.tokens /= packing_.lanes();
  work.windowed /= packing_.lanes();
  work.squares /= packing_.lanes();
  forward_micro_ = forward_part(scheme_.halves(work, 1));
  if (scheme_.scheme().pp > 1) {
    run_stages(work, fewest);
    return std::move(best_);
  }
  int most = shares() ? std::max(fewest, static_cast<int>(packing_.lengths.size())) : 1;
  for (int passes = fewest; passes <= most && !enough(); ++passes) {
    low_ns_ = scheme_.load_ns(work) + passes * scheme_.micro_batch_ns();
    if (low_ns_ >= best_ns_) break;
    if (run(passes)) most = std::min(most, passes + 1);
  }
  return std::move(best_);
}

// As many as keep stages busy beside what each costs, the longest sequences first, or in the middle.
void StripPacker::run_stages(const cost::Work& of_lane, int fewest) {
  const int most = std::max(1, static_cast<int>(packing_.lengths.size()));
  const int64_t work_ns = scheme_.load_ns(of_lane);
  const auto try_first = [&](int passes, int64_t first_milli) {
    low_ns_ = work_ns + passes * scheme_.micro_batch_ns();
    Found found = find_together({.passes = passes, .first_milli = first_milli, .trial = {}});
    if (found.end_ns == kNever) return;
    consider(found.filling);
    if (passes > 2) consider(peaked(std::move(found.filling), passes));
  };
  for (const int passes : micro_batch_counts(work_ns, scheme_.micro_batch_ns(), scheme_.scheme().pp,
                                             std::min(fewest, most), most)) {
    try_first(passes, kMilli);
    for (const int64_t first_milli : kLongFirstMilli) {
      if (passes > 1 && !enough()) try_first(passes, first_milli);
    }
    if (enough()) return;
  }
  if (!best_ && best_ns_ >= kNever) try_first(most, kMilli);  // so many hold all
}

// Whether so many hold all.
bool StripPacker::run(int passes) {
  Found found = find_together({.passes = passes, .trial = {}});
  for (const int64_t first_milli : kLongFirstMilli) {
    if (passes > 1 && found.end_ns > packing_.options.enough_ns)
      search({.passes = passes, .first_milli = first_milli, .trial = {}}, found);
  }
  if (found.end_ns == kNever) return false;
  consider(found.filling);
  if (shares() && !enough() && packing_.options.seeds.has(Seed::kApart)) consider_apart(found);
  if (shares() && !enough() && packing_.options.seeds.has(Seed::kLevel)) consider_levelled(found);
  return true;
}

// Forwards and backwards divide a pass as they like.
StripPacker::Found StripPacker::find_together(Shape shape) {
  Found found;
  for (int least = 1; least <= packing_.node_lanes() || (least <= packing_.lanes() && found.end_ns == kNever);
       least *= 2) {
    shape.trial.least_lanes = least;
    search(shape, found);
  }
  if (scheme_.scheme().pp > 1 || !packing_.options.seeds.has(Seed::kStacks)) return found;
  shape.trial.least_lanes = 1;
  shape.trial.stacks = !shares();
  for (const int64_t most_milli : kMostMilli) {
    shape.trial.most_milli = most_milli;
    search(shape, found);
  }
  return found;
}

// By local search from there. Lanes wait for each other behind the longest forward.
void StripPacker::level_from(Filling filling, const Shape& shape, Found& found) {
  level(packing_, strip_.times(), filling);
  const int64_t end_ns = filling.end_ns(true);
  if (end_ns < found.end_ns) found = {.end_ns = end_ns, .filling = std::move(filling), .shape = shape};
}

// Sequences that are spread for an end a little later leave local search more to do; not where many lie
// evenly already.
void StripPacker::consider_levelled(Found found) {
  found.end_ns = found.filling.end_ns(true);
  level_from(found.filling, found.shape, found);
  int64_t area_ns = 0;
  for (const Load& load : found.filling.loads) area_ns += load.takes.both_ns() * load.lanes.lanes;
  const bool even = found.end_ns - area_ns / packing_.lanes() <= found.end_ns / kFirstRisePart;
  const bool spread = !even || std::ssize(packing_.lengths) <= packing_.lanes();
  Shape shape = found.shape;
  shape.trial.most_milli = kMilli;
  shape.trial.spreads = true;
  for (int least = 1; spread && least <= packing_.lanes(); least *= 2) {
    shape.trial.least_lanes = least;
    if (strip_.fill(shape.of(found.end_ns + found.end_ns / kNearPart)))
      level_from(strip_.filling(), shape, found);
  }
  consider(found.filling);
}

// With limits to forwards and backwards each.
void StripPacker::consider_apart(Found found) {
  const int64_t of_found = forward_part(found.filling.halves());
  low_ns_ = found.end_ns;  // about: less than together is hardly to be had
  found.end_ns = found.filling.end_ns(true);
  found.shape.trial.apart = true;
  for (const int64_t most_milli : kMostMilli) {
    for (const int64_t forward : {of_found, forward_micro_, (of_found + forward_micro_) / 2}) {
      Shape shape = found.shape;
      shape.trial.most_milli = most_milli;
      shape.forward_micro = forward;
      search(shape, found);
    }
  }
  int64_t step = kForwardStepMicro;
  for (int steps = 0; steps < kForwardSteps;) {
    const auto moved = [&](int64_t by) {
      Shape shape = found.shape;
      shape.forward_micro += by;
      return search(shape, found);
    };
    if (moved(step) || moved(-step)) continue;
    step /= 2;
    ++steps;
  }
  if (packing_.options.seeds.has(Seed::kLevel)) level_from(found.filling, found.shape, found);
  consider(found.filling);
}

// Whether some trial end of that shape is less. What holds all for one end need not for a later one: ends
// rise from the least, then are bisected.
bool StripPacker::search(const Shape& shape, Found& found) {
  bool better = false;
  const auto holds = [&](int64_t trial_ns) {
    if (!strip_.fill(shape.of(trial_ns))) return false;
    const int64_t end_ns = strip_.filling().end_ns(shape.trial.apart);
    if (end_ns < found.end_ns) {
      found = {.end_ns = end_ns, .filling = strip_.filling(), .shape = shape};
      better = true;
    }
    return true;
  };
  const int64_t negligible_ns = 1 + low_ns_ / kNegligiblePart;
  int64_t low_ns = low_ns_;
  int64_t high_ns = std::min(found.end_ns, best_ns_);
  if (high_ns < kNever) {
    high_ns -= negligible_ns;
    if (high_ns <= low_ns || !holds(high_ns)) return false;
    high_ns = std::min(high_ns, found.end_ns);
  }
  for (int64_t rise_ns = 1 + low_ns_ / kFirstRisePart;
       low_ns + rise_ns < std::min(high_ns, kMostRise * low_ns_); rise_ns = rise_ns * kRiseMilli / kMilli) {
    if (holds(low_ns + rise_ns)) {
      high_ns = std::min(low_ns + rise_ns, found.end_ns);
      break;
    }
    low_ns += rise_ns;
  }
  if (found.end_ns == kNever && !holds(cost::kLongestNs)) return false;
  high_ns = std::min(high_ns, found.end_ns);
  while (high_ns - low_ns > negligible_ns) {
    const int64_t middle_ns = low_ns + (high_ns - low_ns) / 2;
    if (holds(middle_ns)) {
      high_ns = std::min(middle_ns, found.end_ns);
    } else {
      low_ns = middle_ns;
    }
  }
  return better;
}

void StripPacker::consider(const Filling& filling) {
  std::vector<strategy::Unit> units = strip_.units(filling);
  const int64_t makespan_ns = packing_.timer.makespan_ns(units, best_ns_ - 1);
  if (makespan_ns == schedule::Recurrence::kLate) return;
  best_ns_ = makespan_ns;
  best_ = TimedUnits{std::move(units), makespan_ns};
}

}  // namespace

std::optional<TimedUnits> pack_strip(Packing& packing) { return StripPacker(packing).run(); }

}  // namespace sluice::plan
