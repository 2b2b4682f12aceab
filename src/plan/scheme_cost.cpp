#include "plan/scheme_cost.h"

#include <algorithm>

namespace sluice::plan {
namespace {

// Two of the 2k even chunks of a sequence fit each lane.
int64_t longest_on(int lanes, int64_t lane_max_len_tokens) {
  constexpr int64_t kMostTokens = (int64_t{1} << 31) - 1;
  if (lanes == 1) return lane_max_len_tokens;
  return std::min(kMostTokens, std::max(lane_max_len_tokens, lane_max_len_tokens / 2 * 2 * lanes));
}

// The least that a lane has of a sequence when it has most of all lanes, and there are at most `lanes`.
cost::Work least_share(int64_t length, int lanes, int64_t window) {
  return cost::Work::of_lane((length + lanes - 1) / lanes, length, lanes, window);
}

}  // namespace

SchemeCost::SchemeCost(const strategy::Scheme& scheme, const cost::CostModel& cost, int world_size)
    : scheme_(scheme),
      max_len_tokens_(longest_on(scheme.cp, cost.max_len_tokens(scheme, world_size))),
      lane_max_len_tokens_(cost.max_len_tokens(scheme, world_size)),
      credit_tokens_(cost.credit_tokens(scheme, world_size)),
      util_len_tokens_(cost.util_len_tokens(scheme)),
      gpus_per_node_(cost.options().gpus_per_node),
      intra_(cost.options().intra),
      inter_(cost.options().inter),
      row_bytes_(cost.transfer_bytes(scheme, scheme.tp)) {
  window_ = cost.window();
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const cost::Quadratic times = cost.stage_times(scheme, stage);
    if (std::find(stages_.begin(), stages_.end(), times) == stages_.end()) stages_.push_back(times);
  }
  using cost::CellKind;
  if (scheme.share > 1) add_gathers(cost);
  if (scheme.cp > 1) exchanges_.emplace(scheme, cost);
  for (int stage = 0; stage < scheme.pp; ++stage) {
    const base::Interval part = cost.stage_run(scheme, stage);
    cells_.push_back({cost.cell_times(scheme, CellKind::kForward, part),
                      cost.cell_times(scheme, CellKind::kBackwardInput, part),
                      cost.cell_times(scheme, CellKind::kBackwardWeight, part),
                      cost.stage_times(scheme, stage)});
    if (scheme.cp == 1) continue;
    for (const bool in_node : {true, false}) {
      (in_node ? rings_in_node_ : rings_)
          .push_back({cost.ring_times(scheme, CellKind::kForward, part, in_node),
                      cost.ring_times(scheme, CellKind::kBackwardInput, part, in_node)});
    }
  }
}

// Of the first stage, which has most layers.
void SchemeCost::add_gathers(const cost::CostModel& cost) {
  using cost::CellKind;
  const int node_lanes = std::max(1, gpus_per_node_ / scheme_.tp);
  const auto share = cost.share_times(scheme_, std::min(scheme_.share, node_lanes));
  const base::Interval run = cost.stage_run(scheme_, 0);
  constexpr int64_t kLongNs = int64_t{1} << 45;
  for (const CellKind kind : {CellKind::kForward, CellKind::kBackward}) {
    gathering_ns_ += cost.pass_cell_ns(kind, run, scheme_, share, {}, 0);
    gather_ends_ns_ += cost.pass_cell_ns(kind, run, scheme_, share, {}, kLongNs) - kLongNs;
  }
}

int64_t SchemeCost::gathers_ns(const cost::Work& work) const {
  return std::max(gather_ends_ns_, gathering_ns_ - load_ns(work) - micro_batch_ns());
}

int SchemeCost::fewest_lanes(int64_t length) const {
  if (length <= lane_max_len_tokens_) return 1;
  const int64_t two_chunks = std::max<int64_t>(2, lane_max_len_tokens_ / 2 * 2);
  return static_cast<int>((length + two_chunks - 1) / two_chunks);
}

cost::Exchanges::Exposed SchemeCost::exposed(int stage, const cost::Work& work, int lanes) const {
  if (lanes == 1) return {};
  return exchanges_->least(stage, work, place_of(lanes), lane_max_len_tokens_);
}

bool SchemeCost::takes_ring(const cost::Work& work, int lanes) const {
  const cost::Exchanges::StagePlace stage{0, place_of(lanes)};
  return exchanges_->cheapest(work, std::span(&stage, 1), lane_max_len_tokens_).exchange ==
         strategy::Exchange::kRing;
}

SchemeCost::StageTimes SchemeCost::cells_of(int stage, const cost::Work& work) const {
  const Cells& cells = cells_[static_cast<size_t>(stage)];
  return {cells.forward.of_work(work), cells.backward_input.of_work(work),
          cells.backward_weight.of_work(work)};
}

SchemeCost::Passage SchemeCost::passage(const cost::Work& work, int lanes) const {
  Passage passage{.unit_ns = unit_ns(work, lanes)};
  const int64_t transfers_ns = (scheme_.pp - 1) * transfer_ns(work.tokens);
  passage.to_last_ns = passage.from_last_ns = transfers_ns;
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const StageTimes cells = cells_of(stage, work);
    const auto [forward_ns, backward_ns] = exposed(stage, work, lanes);
    const bool last = stage + 1 == scheme_.pp;
    (last ? passage.from_last_ns : passage.to_last_ns) += cells.forward_ns + forward_ns;
    passage.from_last_ns += cells.backward_input_ns + backward_ns;
    if (stage == 0) passage.from_last_ns += cells.backward_weight_ns;
  }
  return passage;
}

cost::Work SchemeCost::fullest_share(int64_t length, int lanes, int64_t window) {
  const int64_t chunks = int64_t{2} * lanes;
  return cost::Work::of_lane(lanes == 1 ? length : (length + chunks - 1) / chunks * 2, length, lanes, window);
}

int64_t SchemeCost::unit_ns(const cost::Work& work, int lanes) const {
  int64_t slowest = 0;
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const bool alike = stage > 0 && stages_.size() == 1 && (lanes == 1 || exchanges_->alike(0, stage));
    if (alike) continue;
    const int64_t ns =
        cells_[static_cast<size_t>(stage)].all.of_work(work) + exposed(stage, work, lanes).both_ns();
    slowest = std::max(slowest, ns);
  }
  return slowest;
}

int64_t SchemeCost::load_ns(const cost::Work& work) const {
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.of_work(work) - stage.c_ns);
  return slowest;
}

int64_t SchemeCost::sequence_ns(int64_t length) const {
  const cost::Work work = work_of(length);
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) {
    const auto share_ns =
        static_cast<int64_t>(cost::Wide{stage.c_ns} * length / std::max<int64_t>(lane_max_len_tokens_, 1));
    slowest = std::max(slowest, (stage.of_work(work) - stage.c_ns + share_ns) / scheme_.cp);
  }
  return slowest;
}

int64_t SchemeCost::published_ns(int64_t length) const {
  const cost::Work work = work_of(length);
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.of_work(work));
  return slowest / scheme_.cp;
}

int64_t SchemeCost::micro_batch_ns() const {
  int64_t slowest = 0;
  for (const cost::Quadratic& stage : stages_) slowest = std::max(slowest, stage.c_ns);
  return slowest;
}

int64_t SchemeCost::floor_ns(int stage, int64_t length) const {
  const cost::Quadratic& all = cells_[static_cast<size_t>(stage)].all;
  const cost::Work work = work_of(length);
  const cost::Wide fixed =
      all.of_work_fixed(work) + (cost::Wide{all.c_ns} << cost::Quadratic::kFractionBits) * length /
                                    std::max<int64_t>(lane_max_len_tokens_, 1);
  return std::max<int64_t>(0,
                           static_cast<int64_t>((fixed / scheme_.cp) >> cost::Quadratic::kFractionBits) - 2);
}

int64_t SchemeCost::work_floor_ns(int stage, int64_t length) const {
  const cost::Quadratic& all = cells_[static_cast<size_t>(stage)].all;
  const cost::Work work = work_of(length);
  return std::max<int64_t>(
      0, static_cast<int64_t>((all.of_work_fixed(work) / scheme_.cp) >> cost::Quadratic::kFractionBits) - 2);
}

int64_t SchemeCost::forward_parts(int stage, int bits) const {
  int64_t least = stage == 0 ? 0 : int64_t{1} << bits;
  const cost::Quadratic& all = cells_[static_cast<size_t>(stage)].all;
  for (int below = 0; below < stage; ++below) {
    const cost::Quadratic& forward = cells_[static_cast<size_t>(below)].forward;
    for (const auto coefficient :
         {&cost::Quadratic::a, &cost::Quadratic::b, &cost::Quadratic::c_ns, &cost::Quadratic::a_windowed}) {
      if (all.*coefficient == 0) continue;
      least = std::min(least,
                       static_cast<int64_t>((cost::Wide{forward.*coefficient} << bits) / (all.*coefficient)));
    }
  }
  return least;
}

int64_t SchemeCost::constant_ns(int stage) const { return cells_[static_cast<size_t>(stage)].all.c_ns; }

// Time grows with tokens and squares (windowed ones too), and the longest sequences have the most squares a
// token: no full micro-batch has more than they, the last of them in part.
int64_t SchemeCost::fullest_ns(int stage, std::span<const int64_t> lengths) const {
  cost::Work work{.tokens = lane_max_len_tokens_};
  int64_t room = lane_max_len_tokens_;
  for (const int64_t length : lengths) {
    if (length > max_len_tokens_) continue;
    const int64_t held = std::min(length, room);
    work.squares += cost::Wide{held} * length;
    work.windowed += held * std::min(length, 2 * window_);
    room -= held;
    if (room == 0) break;
  }
  constexpr int64_t kRoundingNs = 2;  // of three cells
  return cells_[static_cast<size_t>(stage)].all.of_work(work) + kRoundingNs;
}

int64_t SchemeCost::floor_ns(int stage, const cost::Work& work, int sequences) const {
  const cost::Quadratic& all = cells_[static_cast<size_t>(stage)].all;
  const int64_t most = std::max<int64_t>(lane_max_len_tokens_, 1);
  const int64_t micro_batches = std::max<int64_t>(1, (work.tokens + most - 1) / most);
  const int64_t busy_ns = all.of_work(work) + all.c_ns * (micro_batches - 1);
  return std::max<int64_t>(0, busy_ns / scheme_.cp - 2 * sequences);
}

namespace {

// (k − 1) · (layers · transfer of all the sequence's tokens − attention ÷ k): k times what
// RingTimes::exposed_ns says of one lane, without latencies and layers with windows. Fixed point; negative:
// hidden.
cost::Wide ring_area(const cost::RingTimes& ring, int64_t length, int lanes) {
  const cost::Wide moved_ns = cost::Wide{1'000'000'000} * ring.layers * ring.bytes_per_token * length;
  const cost::Wide transfers = (moved_ns << cost::Quadratic::kFractionBits) / ring.link.bytes_per_s;
  return (lanes - 1) * (transfers - cost::Wide{ring.a} * length * length / lanes);
}

}  // namespace

int64_t SchemeCost::ring_area_ns(int stage, int64_t length, int64_t longest, int lanes) const {
  if (lanes == 1) return 0;
  const auto of = [&](const Rings& rings) {
    int64_t area_ns = 0;
    for (const cost::RingTimes* ring : {&rings.forward, &rings.backward}) {
      if (ring->layers == 0 || ring_area(*ring, longest, lanes) < 0) continue;
      const cost::Wide area = ring_area(*ring, length, lanes) >> cost::Quadratic::kFractionBits;
      // A step is rounded to half a nanosecond, a lane's squares up by one.
      area_ns += std::max<int64_t>(0, static_cast<int64_t>(area) - lanes * (ring->layers + 2));
    }
    return area_ns;
  };
  int64_t least_ns = of(rings_[static_cast<size_t>(stage)]);
  if (lanes <= gpus_per_node_) least_ns = std::min(least_ns, of(rings_in_node_[static_cast<size_t>(stage)]));
  const std::optional<int64_t> heads_ns = exchanges_->heads_area_ns(stage, length, lanes, gpus_per_node_);
  return heads_ns ? std::min(least_ns, *heads_ns) : least_ns;
}

int SchemeCost::hiding_lanes(int stage, int64_t longest) const {
  int lanes = 1;
  while (lanes < scheme_.cp && ring_area_ns(stage, longest, longest, lanes + 1) == 0) ++lanes;
  return lanes;
}

int64_t SchemeCost::ring_floor_ns(int stage, int64_t length, int64_t longest, int64_t limit_ns) const {
  // Where lanes only divide the time, so many are needed at least.
  const int64_t divided_ns = cells_[0].all.of_work(work_of(length));
  const int64_t needed = divided_ns / std::max<int64_t>(1, limit_ns) - 1;  // rounding aside
  int lanes = std::max(fewest_lanes(length), static_cast<int>(std::min<int64_t>(needed, scheme_.cp)));
  while (lanes < scheme_.cp && path_ns(length, lanes) > limit_ns) ++lanes;
  return ring_area_ns(stage, length, longest, lanes) / scheme_.cp;
}

// No transfer is faster than on the better of the links.
int64_t SchemeCost::transfer_ns(int64_t tokens) const {
  const int64_t bytes = (tokens + scheme_.tp - 1) / scheme_.tp * row_bytes_;
  return std::min(intra_.of_bytes(bytes), inter_.of_bytes(bytes));
}

int64_t SchemeCost::fill_ns(int stage, int64_t shortest) const {
  const cost::Work work = least_share(shortest, scheme_.cp, window_);
  int64_t fill_ns = stage * transfer_ns(work.tokens);
  for (int below = 0; below < stage; ++below) {
    fill_ns += cells_[static_cast<size_t>(below)].forward.of_work(work);
  }
  return fill_ns;
}

// Other sequences that share its ring only add tokens and squares, and no cell gets shorter by that but for
// the rounding of what is exposed.
int64_t SchemeCost::path_ns(int64_t length, int lanes, int64_t enough_ns) const {
  const cost::Work work = least_share(length, lanes, window_);
  const int64_t rounding_ns = lanes == 1 ? 0 : 2 * scheme_.pp;
  int64_t path_ns =
      2 * (scheme_.pp - 1) * transfer_ns(work.tokens) + cells_[0].backward_weight.of_work(work) - rounding_ns;
  for (int s = 0; s < scheme_.pp; ++s) {
    const Cells& stage = cells_[static_cast<size_t>(s)];
    path_ns += stage.forward.of_work(work) + stage.backward_input.of_work(work);
  }
  for (int s = 0; s < scheme_.pp && lanes > 1 && path_ns < enough_ns; ++s)
    path_ns += exchanges_->floor_ns(s, work, lanes, gpus_per_node_);
  return path_ns;
}

int64_t SchemeCost::path_ns(int64_t length) const {
  const int fewest = fewest_lanes(length);
  int64_t least_ns = path_ns(length, fewest);
  for (int lanes = fewest + 1; lanes <= scheme_.cp; ++lanes) {
    least_ns = std::min(least_ns, path_ns(length, lanes, least_ns));
  }
  return least_ns;
}

namespace {

constexpr int64_t kRoundingNs = 4;  // of cells, with and without a sequence

int64_t without_constant_ns(const cost::Quadratic& of, const cost::Work& work) {
  return of.of_work(work) - of.c_ns;
}

}  // namespace

int64_t SchemeCost::turning_ns(int64_t length) const {
  const cost::Work work = work_of(length);
  const Cells& last = cells_.back();
  const int64_t turning_ns =
      without_constant_ns(last.forward, work) + without_constant_ns(last.backward_input, work);
  return std::max<int64_t>(0, turning_ns - kRoundingNs);
}

int64_t SchemeCost::passing_ns(int64_t length) const {
  const cost::Work work = work_of(length);
  const Cells& first = cells_[0];
  const int64_t there_ns = without_constant_ns(first.forward, work);
  const int64_t back_ns =
      without_constant_ns(first.backward_input, work) + without_constant_ns(first.backward_weight, work);
  return std::max<int64_t>(0, std::min({turning_ns(length), there_ns - kRoundingNs, back_ns - kRoundingNs}));
}

int SchemeCost::busiest_stage(const cost::Work& work, int64_t shortest) const {
  int busiest = 0;
  int64_t most_ns = -1;
  for (int stage = 0; stage < scheme_.pp; ++stage) {
    const int64_t ns =
        cells_[static_cast<size_t>(stage)].all.of_work(work) / scheme_.cp + fill_ns(stage, shortest);
    if (ns > most_ns) busiest = stage;
    most_ns = std::max(most_ns, ns);
  }
  return busiest;
}

}  // namespace sluice::plan
