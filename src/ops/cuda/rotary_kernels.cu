// The kernel of ops/rotary.h. Bound by memory: reads and writes each element once; all heads of a row read
// its angles, which stay in the caches. A thread rotates one vector of pairs.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

template <typename S, int kWide>
__global__ void rotate(const Rotary rotary, int64_t vectors) {
  if (global_thread() >= vectors) return;
  const int64_t in_head = rotary.pairs / kWide, in_row = rotary.heads * in_head;
  const int64_t row = global_thread() / in_row, in_this_row = global_thread() % in_row;
  const int64_t head = in_this_row / in_head, pair = in_this_row % in_head * kWide;
  S* low = static_cast<S*>(rotary.x) + row * rotary.row_stride + head * 2 * rotary.pairs + pair;
  S* high = low + rotary.pairs;
  const int64_t angle = rotary.positions[row] * rotary.pairs + pair;
  const Floats<kWide> c = load<kWide>(rotary.cosines + angle), s = load<kWide>(rotary.sines + angle);
  Floats<kWide> a = load<kWide>(low), b = load<kWide>(high);
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) {
    const float sine = rotary.sign * s.at[i], before = a.at[i];
    a.at[i] = before * c.at[i] - b.at[i] * sine;
    b.at[i] = b.at[i] * c.at[i] + before * sine;
  }
  store<kWide>(low, a);
  store<kWide>(high, b);
}

}  // namespace

Status launch_rotary(Element element, const Rotary& rotary, Stream stream) {
  const int64_t all_pairs = rotary.rows * rotary.heads * rotary.pairs;
  return visit_element(element, [&]<typename S>() {
    if (can_be_wide<S>(rotary.pairs, {rotary.x, rotary.cosines, rotary.sines}) &&
        can_be_wide<S>(rotary.row_stride, {})) {
      const int64_t vectors = all_pairs / kWidest<S>;
      return launch(rotate<S, kWidest<S>>, blocks_for(vectors), stream, Rotary(rotary), vectors);
    }
    return launch(rotate<S, 1>, blocks_for(all_pairs), stream, Rotary(rotary), int64_t{all_pairs});
  });
}

}  // namespace sluice::ops::kernels
