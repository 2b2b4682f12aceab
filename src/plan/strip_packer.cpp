#include "plan/strip_packer.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/never.h"
#include "base/units.h"
#include "plan/bins.h"
#include "plan/level.h"
#include "plan/precision.h"
#include "plan/strip.h"

namespace sluice::plan {
namespace {

using base::kMicro;
using base::kMilli;

// Trial::most_milli: the part of its pass that a sequence on several lanes may take.
constexpr std::initializer_list<int64_t> kMostMilli = {kMilli, 850, 700, 550};
// The first pass relative to an even one.
constexpr std::initializer_list<int64_t> kLongFirstMilli = {1'250, 1'500, 1'750};
// Passes of several stages start with kEnds pairs of small ones. The
// next numbers of passes to try are 1 ÷ kStepPart more and fewer.
constexpr int kEnds = 2;
constexpr int kStepPart = 4;
// For at most so many sequences nearly all numbers of passes are tried.
constexpr size_t kFewToTryAll = 32;
// The forward's part of a pass moves by this step, then by a half and a quarter of it.
constexpr int64_t kForwardStepMicro = 4'000;
constexpr int64_t kForwardSteps = 3;
// The rise of a trial end that no filling meets grows by this factor each time.
constexpr int64_t kRiseMilli = 1'600;
// Beyond this multiple of the work alone hardly anything ends, so any end will do.
constexpr int64_t kMostRise = 64;

// The forward's part of both, in millionths.
int64_t forward_part(const SchemeCost::Halves& halves) {
  const int64_t both_ns = std::max<int64_t>(1, halves.both_ns());
  return static_cast<int64_t>(cost::Wide{halves.forward_ns} * kMicro / both_ns);
}

// The division of a trial end into passes, and the trial's other limits.
struct Shape {
  int passes = 1;
  int64_t first_milli = kMilli;        // the first pass, relative to a whole one
  int ends = 0;                        // pairs of small passes at the end: halves, quarters, ...
  int64_t forward_micro = kMicro / 2;  // the forward's part of each pass
  std::vector<int64_t> longest_ns;     // first passes: least time of their longest sequence
  Trial trial;                         // without Trial::passes

  // The length of a pass relative to a whole one.
  int64_t milli(int pass) const {
    return pass == 0 ? first_milli : kMilli >> std::max(0, ends - (passes - 1 - pass) / 2);
  }
  int64_t all_milli() const {
    int64_t all = 0;
    for (int pass = 0; pass < passes; ++pass) all += milli(pass);
    return all;
  }
  Trial of(int64_t end_ns) const {
    Trial of = trial;
    int64_t left_milli = all_milli();
    int64_t left_ns = end_ns;
    bool rest = false;  // the remaining passes reach their least time
    for (int pass = 0; pass < passes; ++pass) {
      const auto place = static_cast<size_t>(pass);
      auto pass_ns = static_cast<int64_t>(cost::Wide{left_ns} * milli(pass) / left_milli);
      rest = rest || place >= longest_ns.size() || pass_ns >= longest_ns[place];
      if (!rest) {
        pass_ns = std::min(longest_ns[place], left_ns);
        left_ns -= pass_ns;
        left_milli -= milli(pass);
      }
      const auto forward_ns = static_cast<int64_t>(cost::Wide{pass_ns} * forward_micro / kMicro);
      of.passes.push_back({forward_ns, pass_ns - forward_ns});
    }
    return of;
  }
};

// A row of the header's table: values of knobs, tried in all combinations, the last knob's values fastest. A
// knob without values stays as it is in the shape.
struct Product {
  std::vector<int> least_lanes = {};
  std::vector<int64_t> most_milli = {};
  std::vector<int64_t> first_milli = {};
  std::vector<int64_t> forward_micro = {};
  std::vector<bool> keeps_whole = {};

  std::vector<Shape> of(const Shape& shape) const {
    std::vector<Shape> shapes = {shape};
    const auto multiply = [&](const auto& values, auto set) {
      if (values.empty()) return;
      std::vector<Shape> all;
      for (const Shape& each : shapes) {
        for (const auto value : values) set(all.emplace_back(each), value);
      }
      shapes = std::move(all);
    };
    multiply(least_lanes, [](Shape& each, int lanes) { each.trial.least_lanes = lanes; });
    multiply(most_milli, [](Shape& each, int64_t milli) { each.trial.most_milli = milli; });
    multiply(first_milli, [](Shape& each, int64_t milli) { each.first_milli = milli; });
    multiply(forward_micro, [](Shape& each, int64_t micro) { each.forward_micro = micro; });
    multiply(keeps_whole, [](Shape& each, bool whole) { each.trial.keeps_whole = whole; });
    return shapes;
  }
};

// 1, 2, 4 and so on, at most `most`.
std::vector<int> doubled(int most) {
  std::vector<int> values;
  for (int value = 1; value <= most; value *= 2) values.push_back(value);
  return values;
}

// The position of a pass if the last `pairs` pairs lie alternately in front and behind.
int place_of(int pass, int passes, int pairs) {
  const int from_last = passes - 1 - pass;
  return from_last < 2 * pairs ? place_towards_middle(from_last, passes) : pairs + pass;
}

Filling in_order(Filling filling, int passes, int pairs) {
  for (Load& load : filling.loads) load.pass = place_of(load.pass, passes, pairs);
  return filling;
}

class StripPacker {
 public:
  explicit StripPacker(Packing& packing)
      : packing_(packing), scheme_(packing.scheme), strip_(packing), best_ns_(packing.options.below_ns) {}

  std::optional<TimedMicroBatches> run();

 private:
  // The least end found, with its filling and shape.
  struct Found {
    int64_t end_ns = cost::kLongestNs;
    Filling filling;
    Shape shape;
  };

  bool has(Seed seed) const { return packing_.options.seeds.has(seed); }
  bool enough() const { return best_ns_ <= packing_.options.enough_ns; }
  bool few() const { return packing_.lengths.size() <= kFewToTryAll; }
  bool shares() const { return scheme_.scheme().fsdp > 1; }
  void run_stages(const cost::Work& of_lane);
  bool fill_stages(Shape shape);
  std::vector<int64_t> longest_ns(int passes);
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
  int64_t low_ns_ = 0;         // lower bound on any end
  int64_t forward_micro_ = 0;  // for all work
  int64_t best_ns_;
  std::optional<TimedMicroBatches> best_;
};

std::optional<TimedMicroBatches> StripPacker::run() {
  cost::Work work = scheme_.work_of(packing_.lengths);
  const int64_t room = std::max<int64_t>(1, scheme_.lane_max_len_tokens() * packing_.lanes());
  const auto fewest = static_cast<int>(shares() ? std::max<int64_t>(1, (work.tokens + room - 1) / room) : 1);
  work.tokens /= packing_.lanes();
  work.windowed /= packing_.lanes();
  work.squares /= packing_.lanes();
  forward_micro_ = forward_part(scheme_.halves(work, 1));
  if (scheme_.scheme().pp > 1) {
    run_stages(work);
    return std::move(best_);
  }
  int most = shares() ? std::max(fewest, static_cast<int>(packing_.lengths.size())) : 1;
  for (int passes = fewest; passes <= most && !enough(); ++passes) {
    low_ns_ = scheme_.load_ns(work) + passes * scheme_.micro_batch_ns();
    if (low_ns_ >= best_ns_) break;
    if (run(passes)) most = std::min(most, passes + (has(Seed::kMorePasses) ? 1 : 0));
  }
  return std::move(best_);
}

// Finds the number of passes that keep stages busy for their constants, with small passes
// first and last, by trial schedules. Memory holds as many passes as there are stages.
void StripPacker::run_stages(const cost::Work& of_lane) {
  const int pp = scheme_.scheme().pp;
  const int64_t work_ns = scheme_.load_ns(of_lane);
  const int64_t most_tokens = std::max<int64_t>(1, scheme_.credit_tokens() / pp);
  const int most = std::max(1, static_cast<int>(packing_.lengths.size()));
  const auto fewest = static_cast<int>(std::min<int64_t>(most, of_lane.tokens / most_tokens + 1));
  const int64_t even = even_micro_batches(work_ns, scheme_.micro_batch_ns(), pp);
  Shape best{.passes = static_cast<int>(std::clamp<int64_t>(even / 2, std::min(2 * fewest, most), most)),
             .ends = kEnds,
             .trial = {.most_tokens = most_tokens}};
  const auto is_better = [&](int passes, int ends) {
    Shape shape = best;
    shape.passes = std::clamp(passes, fewest, most);
    shape.ends = std::clamp(ends, 0, (shape.passes - 1) / 2);
    low_ns_ = work_ns + shape.passes * scheme_.micro_batch_ns();
    if (enough() || !fill_stages(shape)) return false;
    best = shape;
    return true;
  };
  is_better(best.passes, best.ends);
  const int first = best.passes;
  while (is_better(best.passes + best.passes / kStepPart + 1, best.ends)) {
  }
  while (best.passes <= first && is_better(best.passes - best.passes / kStepPart, best.ends)) {
  }
  if (!is_better(best.passes, best.ends + 1)) is_better(best.passes, best.ends - 1);
  for (int passes = fewest; few() && passes <= most; passes += 1 + passes / (2 * kStepPart))
    is_better(passes, 0);
  low_ns_ = work_ns;
  if (!best_ && best_ns_ >= cost::kLongestNs) fill_stages({.passes = most, .trial = {}});  // so many hold all
}

// Least times of the first passes: the times of the longest
// sequences that fill their lanes, while these exceed an even pass.
std::vector<int64_t> StripPacker::longest_ns(int passes) {
  std::vector<int64_t> longest_ns;
  WidthTimes& times = strip_.times();
  int lanes = packing_.lanes();  // lanes taken in the last pass
  int64_t left_ns = low_ns_;
  for (int place = 0; place < times.places(); ++place) {
    int best = times.first_width(place);
    for (int width = best + 1; width < times.end_width(place); ++width) {
      if (times.alone(place, width).both_ns() < times.alone(place, best).both_ns()) best = width;
    }
    const int64_t alone_ns = times.alone(place, best).both_ns();
    if (alone_ns <= left_ns / (passes - std::ssize(longest_ns))) break;
    lanes += times.lanes(best);
    if (lanes <= packing_.lanes()) continue;
    lanes = times.lanes(best);
    longest_ns.push_back(alone_ns + alone_ns / kNegligiblePart);  // widths are chosen by rounded work
    left_ns -= alone_ns;
    if (std::ssize(longest_ns) == passes) break;
  }
  return longest_ns;
}

// Whether the result beats all earlier ones.
bool StripPacker::fill_stages(Shape shape) {
  const int64_t before_ns = best_ns_;
  shape.longest_ns = longest_ns(shape.passes);
  const Found found = find_together(shape);
  if (found.end_ns == cost::kLongestNs) return false;
  const int most = shape.passes / 2;
  consider(in_order(found.filling, shape.passes, shape.ends));
  if (most != shape.ends) consider(in_order(found.filling, shape.passes, most));
  if (most > 0 && shape.ends > 0) consider(in_order(found.filling, shape.passes, 0));
  return best_ns_ < before_ns;
}

// Whether so many passes hold all sequences.
bool StripPacker::run(int passes) {
  const Shape shape{.passes = passes, .longest_ns = longest_ns(passes), .trial = {}};
  Found found = find_together(shape);
  for (const Shape& longer : Product{.first_milli = kLongFirstMilli}.of(shape)) {
    const bool tries = passes > 1 && has(Seed::kLongFirst);
    if (tries && found.end_ns > packing_.options.enough_ns) search(longer, found);
  }
  if (found.end_ns == cost::kLongestNs) return false;
  consider(found.filling);
  const bool waits = shares() && has(Seed::kHalves);
  if (waits && !enough()) consider_apart(found);
  if (waits && !enough()) consider_levelled(found);
  return true;
}

// Limits only the sum of forwards and backwards. On few lanes a sequence
// may never end in time, so larger least_lanes are a last resort.
StripPacker::Found StripPacker::find_together(Shape shape) {
  Found found;
  const bool staged = scheme_.scheme().pp > 1;
  const int most_least = staged && !few() ? 1 : packing_.node_lanes;
  std::vector<bool> keeps_whole = {false};
  if (!staged && packing_.lanes() > packing_.node_lanes) keeps_whole.push_back(true);
  const Product lanes{.least_lanes = doubled(std::max(most_least, packing_.lanes())),
                      .keeps_whole = keeps_whole};
  for (const Shape& each : lanes.of(shape)) {
    const bool last_resort = each.trial.least_lanes > most_least;
    const bool fewer_held =
        found.end_ns != cost::kLongestNs && found.shape.trial.least_lanes < each.trial.least_lanes;
    if (!last_resort || !fewer_held) search(each, found);
  }
  if (staged || packing_.lanes() == 1 || !has(Seed::kStacks)) return found;
  shape.trial.stacks = !shares();
  const Product parts{.most_milli = kMostMilli, .keeps_whole = keeps_whole};
  for (const Shape& each : parts.of(shape)) search(each, found);
  return found;
}

// Improves a filling by local search, for lanes that wait for each other after the longest forward.
void StripPacker::level_from(Filling filling, const Shape& shape, Found& found) {
  level(packing_, strip_.times(), filling);
  const int64_t end_ns = filling.end_ns(true);
  if (end_ns < found.end_ns) found = {.end_ns = end_ns, .filling = std::move(filling), .shape = shape};
}

// Fillings that spread sequences, for a slightly later end, leave
// more to local search. Skipped if many sequences are even already.
void StripPacker::consider_levelled(Found found) {
  found.end_ns = found.filling.end_ns(true);
  level_from(found.filling, found.shape, found);
  int64_t area_ns = 0;
  for (const Load& load : found.filling.loads)
    area_ns += load.divided ? 0 : load.takes.both_ns() * load.lanes.lanes;
  const bool even = found.end_ns - area_ns / packing_.lanes() <= found.end_ns / kFirstRisePart;
  const bool spread = !even || std::ssize(packing_.lengths) <= packing_.lanes();
  Shape shape = found.shape;
  shape.trial.most_milli = kMilli;
  shape.trial.spreads = true;
  const Product lanes{.least_lanes = doubled(packing_.lanes())};
  for (const Shape& each : spread ? lanes.of(shape) : std::vector<Shape>{}) {
    if (strip_.fill(each.of(found.end_ns + found.end_ns / kNearPart)))
      level_from(strip_.filling(), each, found);
  }
  consider(found.filling);
}

// Limits forwards and backwards separately.
void StripPacker::consider_apart(Found found) {
  const int64_t of_found = forward_part(found.filling.halves());
  low_ns_ = found.end_ns;  // approximate: a smaller end is unlikely
  found.end_ns = found.filling.end_ns(true);
  found.shape.trial.apart = true;
  const Product product{.most_milli = kMostMilli,
                        .forward_micro = {of_found, forward_micro_, (of_found + forward_micro_) / 2}};
  for (const Shape& each : product.of(found.shape)) search(each, found);
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
  level_from(found.filling, found.shape, found);
  consider(found.filling);
}

// Whether a trial end of that shape beats `found`. An end may hold all while
// a later one does not, so ends rise from the least, then are bisected.
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
  const int64_t negligible_ns = 1 + low_ns_ / (has(Seed::kFineEnds) ? kNegligiblePart : kCoarsePart);
  int64_t low_ns = low_ns_;
  int64_t high_ns = std::min(found.end_ns, best_ns_);
  if (high_ns < cost::kLongestNs) {
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
  if (found.end_ns == cost::kLongestNs && !holds(cost::kLongestNs)) return false;
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
  std::vector<strategy::PipelineMicroBatch> micro_batches = strip_.pipeline_micro_batches(filling);
  const int64_t makespan_ns = packing_.timer.makespan_ns(micro_batches, best_ns_ - 1);
  if (makespan_ns == base::kNever) return;
  best_ns_ = makespan_ns;
  best_ = TimedMicroBatches{std::move(micro_batches), makespan_ns};
}

}  // namespace

std::optional<TimedMicroBatches> pack_strip(Packing& packing) { return StripPacker(packing).run(); }

}  // namespace sluice::plan
