#include "cost/link_times.h"

#include <algorithm>

namespace sluice::cost {

int64_t LinkTimes::of_bytes(int64_t bytes) const {
  return latency_ns + divide_nearest(Wide{bytes} * 1'000'000'000, bytes_per_s);
}

namespace {

// The part of `transfers_ns` that neither `attention` nor `made` hides. Attention to the rows that a lane
// held at first hides nothing.
int64_t exposed_beside(Wide transfers_ns, Wide attention, Wide made, int lanes) {
  const Wide exposed =
      (transfers_ns << Quadratic::kFractionBits) - (attention - divide(attention, lanes)) - made;
  return exposed <= 0 ? 0 : whole_ns(exposed);
}

}  // namespace

// A lane's tokens are two chunks of each of m sequences. If all sequences are longer than the window, then
// k·windowed = 2·window·k·tokens − m·window². The sums thus give 2·m·window, the number of tokens that a
// lane's chunks see of other lanes.
int64_t RingTimes::exposed_in_windows_ns(const Work& shared, int lanes) const {
  if (windowed_layers == 0 || lanes == 1 || shared.tokens == 0) return 0;
  const Wide most = Wide{lanes - 1} * shared.tokens;
  const Wide seen =
      2 * Wide{sides} * Wide{lanes} * (2 * Wide{window} * shared.tokens - shared.windowed) / window;
  const auto tokens = static_cast<int64_t>(std::clamp<Wide>(seen, 0, most));
  const int64_t steps = std::min<int64_t>(lanes - 1, 2 * divide_up(tokens, shared.tokens));
  const int64_t steps_ns = std::max(
      host_ns * steps, link.of_bytes(bytes_per_token * tokens) + link.latency_ns * (steps - 1));
  return exposed_beside(Wide{windowed_layers} * steps_ns, Wide{a_windowed} * shared.windowed, /*made=*/0,
                        lanes);
}

int64_t RingTimes::exposed_ns(const Work& shared, int lanes) const {
  if (layers == 0 || lanes == 1) return exposed_in_windows_ns(shared, lanes);
  const Wide steps_ns = (lanes - 1) * (step_ns(shared) >> Quadratic::kFractionBits);
  const Wide made = Wide{made_per_token} * shared.tokens * (lanes - 1);
  return whole_ns(made) + exposed_beside(steps_ns, Wide{a} * shared.squares, made, lanes) +
         exposed_in_windows_ns(shared, lanes);
}

Wide RingTimes::step_ns(const Work& shared) const {
  const int64_t step_ns = std::max(host_ns, link.of_bytes(bytes_per_token * shared.tokens));
  return Wide{layers} * step_ns << Quadratic::kFractionBits;
}

// Keys and values are made again from received rows in every step but the first.
int64_t RingTimes::exposed_ns(const Work& shared, int nodes, int in_node, const RingTimes& inside) const {
  const int lanes = nodes * in_node;
  if (in_node == 1) return exposed_ns(shared, lanes);
  if (nodes == 1) return inside.exposed_ns(shared, lanes);
  if (layers == 0) return exposed_in_windows_ns(shared, lanes);
  const Wide attention = Wide{a} * shared.squares, made = Wide{made_per_token} * shared.tokens;
  const Wide own = divide(attention, lanes) + made;
  const Wide round = (in_node - 1) * std::max(own, inside.step_ns(shared)) + own;
  const Wide exposed = (nodes - 1) * std::max(round, step_ns(shared)) + round - made - attention;
  return std::max<int64_t>(0, whole_ns(exposed)) + exposed_in_windows_ns(shared, lanes);
}

}  // namespace sluice::cost
