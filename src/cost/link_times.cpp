#include "cost/link_times.h"

#include <algorithm>

namespace sluice::cost {

int64_t LinkTimes::of_bytes(int64_t bytes) const {
  return latency_ns + divide_nearest(Wide{bytes} * 1'000'000'000, bytes_per_s);
}

namespace {

// Of what `transfers_ns` takes beside `attention`, of which lanes hide all but the part on what they held at
// first.
int64_t exposed_beside(Wide transfers_ns, Wide attention, int lanes) {
  const Wide exposed = (transfers_ns << Quadratic::kFractionBits) - (attention - divide(attention, lanes));
  return exposed <= 0 ? 0 : whole_ns(exposed);
}

}  // namespace

// A lane's tokens are two chunks of each of m sequences. Where all are longer than the window,
// k·windowed = 2·window·k·tokens − m·window², so 2·m·window, what its chunks see of others, follows from the
// sums.
int64_t RingTimes::exposed_in_windows_ns(const Work& shared, int lanes) const {
  if (windowed_layers == 0 || lanes == 1 || shared.tokens == 0) return 0;
  const Wide most = Wide{lanes - 1} * shared.tokens;
  const Wide seen = 2 * Wide{lanes} * (2 * Wide{window} * shared.tokens - shared.windowed) / window;
  const auto tokens = static_cast<int64_t>(std::clamp<Wide>(seen, 0, most));
  const int64_t steps = std::min<int64_t>(lanes - 1, 2 * divide_up(tokens, shared.tokens));
  const int64_t step_ns = link.of_bytes(bytes_per_token * tokens) + link.latency_ns * (steps - 1);
  return exposed_beside(Wide{windowed_layers} * step_ns, Wide{a_windowed} * shared.windowed, lanes);
}

// That a recurrent layer's state travels in (layers/lane_recurrence.cpp).
constexpr int64_t kStateBlocks = 4;

// A state goes past all pieces of its sequence, from lane to lane and back, in blocks of which each is on its
// way while the one before is made. Nothing hides it.
int64_t RingTimes::exposed_in_scans_ns(const Work& shared, int lanes) const {
  if (scanned_layers == 0 || lanes == 1 || shared.tokens == 0) return 0;
  const int64_t hops = 2 * (int64_t{lanes} - 1) + kStateBlocks - 1;
  return scanned_layers * hops * link.of_bytes(divide_up(state_bytes, kStateBlocks));
}

int64_t RingTimes::exposed_ns(const Work& shared, int lanes) const {
  const int64_t others_ns = exposed_in_windows_ns(shared, lanes) + exposed_in_scans_ns(shared, lanes);
  if (layers == 0 || lanes == 1) return others_ns;
  const Wide steps_ns = Wide{lanes - 1} * layers * link.of_bytes(bytes_per_token * shared.tokens);
  return exposed_beside(steps_ns, Wide{a} * shared.squares, lanes) + others_ns;
}

}  // namespace sluice::cost
