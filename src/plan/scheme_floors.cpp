#include "plan/scheme_floors.h"

#include <algorithm>
#include <optional>

#include "base/units.h"

namespace sluice::plan {
namespace {

// The least work of a sequence's fullest lane, if at most `lanes` lanes have parts of it.
cost::Work least_share(int64_t length, int lanes, int64_t window) {
  return cost::Work::of_lane((length + lanes - 1) / lanes, length, lanes, window);
}

}  // namespace

int64_t SchemeFloors::floor_ns(int stage, int64_t length) const {
  const cost::Quadratic& all = of_.stage(stage).all;
  const cost::Work work = of_.work_of(length);
  const cost::Wide fixed =
      all.of_work_fixed(work) + (cost::Wide{constant_ns(stage)} << cost::Quadratic::kFractionBits) * length /
                                    std::max<int64_t>(of_.lane_max_len_tokens, 1);
  return std::max<int64_t>(
      0, static_cast<int64_t>((fixed / of_.scheme.cp) >> cost::Quadratic::kFractionBits) - 2);
}

int64_t SchemeFloors::work_floor_ns(int stage, int64_t length) const {
  const cost::Quadratic& all = of_.stage(stage).all;
  const cost::Work work = of_.work_of(length);
  return std::max<int64_t>(
      0,
      static_cast<int64_t>((all.of_work_fixed(work) / of_.scheme.cp) >> cost::Quadratic::kFractionBits) - 2);
}

int64_t SchemeFloors::forward_parts(int stage) const {
  int64_t least = stage == 0 ? 0 : kWholePart;
  const cost::Quadratic& all = of_.stage(stage).all;
  for (int below = 0; below < stage; ++below) {
    const cost::Quadratic& forward = of_.stage(below).forward;
    for (const auto coefficient :
         {&cost::Quadratic::a, &cost::Quadratic::b, &cost::Quadratic::c_ns, &cost::Quadratic::a_windowed}) {
      if (all.*coefficient == 0) continue;
      least = std::min(
          least, static_cast<int64_t>((cost::Wide{forward.*coefficient} << kPartBits) / (all.*coefficient)));
    }
  }
  return least;
}

int64_t SchemeFloors::constant_ns(int stage) const { return of_.stage(stage).all.c_ns + of_.pass_ends_ns; }

// Time grows with tokens and squares (windowed ones too), and the longest sequences have most
// squares per token. So no full micro-batch exceeds the longest sequences, the last one in part.
int64_t SchemeFloors::fullest_ns(int stage, std::span<const int64_t> lengths) const {
  cost::Work work;
  int64_t room = of_.lane_max_len_tokens;
  for (const int64_t length : lengths) {
    if (length > of_.max_len_tokens) continue;
    const int64_t held = std::min(length, room);
    work.squares += cost::Wide{held} * length;
    work.windowed += held * std::min(length, 2 * of_.cost.window());
    room -= held;
    if (room == 0) break;
  }
  // A device may have room for more tokens than the batch has, or than durations can express.
  work.tokens = of_.lane_max_len_tokens - room;
  constexpr int64_t kRoundingNs = 2;  // three cells
  return of_.stage(stage).all.of_work(work) + of_.pass_ends_ns + kRoundingNs;
}

int64_t SchemeFloors::floor_ns(int stage, const cost::Work& work, int sequences) const {
  const cost::Quadratic& all = of_.stage(stage).all;
  const int64_t most = std::max<int64_t>(of_.lane_max_len_tokens, 1);
  const int64_t micro_batches = std::max<int64_t>(1, (work.tokens + most - 1) / most);
  const int64_t busy_ns = all.of_work(work) - all.c_ns + constant_ns(stage) * micro_batches;
  return std::max<int64_t>(0, busy_ns / of_.scheme.cp - 2 * sequences);
}

namespace {

// A ring's transfers of a token to one other member, in all layers, without latencies; fixed point.
cost::Wide token_transfers(const cost::RingTimes& ring) {
  const cost::Wide moved_ns = cost::Wide{base::kNano} * ring.layers * ring.bytes_per_token;
  return (moved_ns << cost::Quadratic::kFractionBits) / ring.link.bytes_per_s;
}

}  // namespace

int SchemeFloors::lanes_in_node() const { return of_.cost.options().topology.lanes_of_node(of_.scheme.tp); }

bool SchemeFloors::may_hide(const cost::RingTimes& ring, int members, int member_lanes,
                            const RingLimits& limits) const {
  if (ring.a == 0) return false;
  const cost::Wide shortest = token_transfers(ring) * members / ring.a;
  if (shortest > limits.longest) return false;
  const auto length = static_cast<int64_t>(shortest);
  const cost::Work work = least_share(length, members * member_lanes, of_.cost.window());
  return of_.stage(limits.stage).all.of_work(work) - 2 <= limits.end_ns;  // rounding of cells
}

// k times RingTimes::exposed_ns of one lane, for k lanes: (m − 1) · (transfers of all the
// sequence's tokens − attention ÷ m). Steps round to half a nanosecond, a lane's squares up by one.
int64_t SchemeFloors::rings_area_ns(const SchemeFigures::Stage::Rings& rings, int64_t length, int members,
                                    int member_lanes, const RingLimits& limits) const {
  int64_t area_ns = 0;
  for (const cost::RingTimes* ring : {&rings.forward, &rings.backward}) {
    if (ring->layers == 0 || may_hide(*ring, members, member_lanes, limits)) continue;
    const cost::Wide exposed =
        token_transfers(*ring) * length - cost::Wide{ring->a} * length * length / members;
    const auto ns = static_cast<int64_t>((members - 1) * exposed >> cost::Quadratic::kFractionBits);
    area_ns += std::max<int64_t>(0, ns - members * member_lanes * (ring->layers + 2));
  }
  return area_ns;
}

int64_t SchemeFloors::exchange_area_ns(int64_t length, int lanes, const RingLimits& limits) const {
  if (lanes == 1 || of_.cost.options().exchanges.moves_queries()) return 0;
  const SchemeFigures::Stage& figures = of_.stage(limits.stage);
  const int in_node = lanes_in_node();
  const auto ring_ns = [&](int members, int member_lanes) {
    // A ring on two levels counts transfers between nodes:
    // it has at least as many members as there are nodes.
    const int nodes = std::max(2, (members * member_lanes + in_node - 1) / in_node);
    const int64_t between_ns = rings_area_ns(figures.ring_between_nodes, length, nodes, in_node, limits);
    if (members * member_lanes > in_node) return between_ns;
    return std::min(between_ns, rings_area_ns(figures.ring_in_node, length, members, member_lanes, limits));
  };
  int64_t least_ns = ring_ns(lanes, 1);
  if (least_ns == 0) return 0;
  if (const auto heads_ns = of_.exchanges->heads_area_ns(limits.stage, length, lanes, in_node))
    least_ns = std::min(least_ns, *heads_ns);
  for (int group = 2; group <= in_node; ++group) {
    const std::optional<int64_t> groups_ns = of_.exchanges->head_groups_area_ns(limits.stage, length, group);
    if (!groups_ns) break;
    if (*groups_ns >= least_ns) continue;
    least_ns = std::min(least_ns, *groups_ns + ring_ns(std::max(2, (lanes + group - 1) / group), group));
  }
  return least_ns;
}

int SchemeFloors::hiding_lanes(const RingLimits& limits) const {
  int lanes = 1;
  while (lanes < of_.scheme.cp && exchange_area_ns(limits.longest, lanes + 1, limits) == 0) ++lanes;
  return lanes;
}

int64_t SchemeFloors::ring_floor_ns(int64_t length, const RingLimits& limits) const {
  // Lanes only divide the time, so at least `needed` lanes are necessary.
  const int64_t divided_ns = of_.stage(0).all.of_work(of_.work_of(length));
  const int64_t needed = divided_ns / std::max<int64_t>(1, limits.end_ns) - 1;  // rounding aside
  int lanes = std::max(of_.fewest_lanes(length), static_cast<int>(std::min<int64_t>(needed, of_.scheme.cp)));
  while (lanes < of_.scheme.cp && path_ns(length, lanes) > limits.end_ns) ++lanes;
  return exchange_area_ns(length, lanes, limits) / of_.scheme.cp;
}

int64_t SchemeFloors::fill_ns(int stage, int64_t shortest) const {
  const cost::Work work = least_share(shortest, of_.scheme.cp, of_.cost.window());
  int64_t fill_ns = stage * of_.transfer_ns(work.tokens);
  for (int below = 0; below < stage; ++below) {
    fill_ns += of_.stage(below).forward.of_work(work);
  }
  return fill_ns;
}

// Other sequences in the ring only add tokens and squares. This
// shortens no cell, apart from the rounding of exposed times.
int64_t SchemeFloors::path_ns(int64_t length, int lanes, int64_t enough_ns) const {
  const cost::Work work = least_share(length, lanes, of_.cost.window());
  const int64_t rounding_ns = lanes == 1 ? 0 : 2 * of_.scheme.pp;
  int64_t path_ns = of_.path_ns(work) - rounding_ns;
  for (int s = 0; s < of_.scheme.pp && lanes > 1 && path_ns < enough_ns; ++s)
    path_ns += of_.exchanges->floor_ns(s, work, lanes, lanes_in_node());
  return path_ns;
}

int64_t SchemeFloors::path_ns(int64_t length) const {
  const int fewest = of_.fewest_lanes(length);
  int64_t least_ns = path_ns(length, fewest);
  for (int lanes = fewest + 1; lanes <= of_.scheme.cp; ++lanes) {
    least_ns = std::min(least_ns, path_ns(length, lanes, least_ns));
  }
  return least_ns;
}

namespace {

constexpr int64_t kRoundingNs = 2 * 2;  // two cells, with and without a sequence

int64_t without_constant_ns(const cost::Quadratic& of, const cost::Work& work) {
  return of.of_work(work) - of.c_ns;
}

}  // namespace

int64_t SchemeFloors::turning_ns(int64_t length) const {
  const cost::Work work = of_.work_of(length);
  const SchemeFigures::Stage& last = of_.stages.back();
  const int64_t turning_ns =
      without_constant_ns(last.forward, work) + without_constant_ns(last.backward_input, work);
  return std::max<int64_t>(0, turning_ns - kRoundingNs);
}

int64_t SchemeFloors::passing_ns(int64_t length) const {
  const cost::Work work = of_.work_of(length);
  const SchemeFigures::Stage& first = of_.stage(0);
  const int64_t there_ns = without_constant_ns(first.forward, work);
  const int64_t back_ns =
      without_constant_ns(first.backward_input, work) + without_constant_ns(first.backward_weight, work);
  return std::max<int64_t>(0, std::min({turning_ns(length), there_ns - kRoundingNs, back_ns - kRoundingNs}));
}

int SchemeFloors::busiest_stage(const cost::Work& work, int64_t shortest) const {
  int busiest = 0;
  int64_t most_ns = -1;
  for (int stage = 0; stage < of_.scheme.pp; ++stage) {
    const int64_t ns = of_.stage(stage).all.of_work(work) / of_.scheme.cp + fill_ns(stage, shortest);
    if (ns > most_ns) busiest = stage;
    most_ns = std::max(most_ns, ns);
  }
  return busiest;
}

}  // namespace sluice::plan
