// The kernels of SwiGLU (ops/gated_activation.h), bound by memory. Per element of the result, forward reads 2 elements and
// writes 1; backward reads 3 and writes 3. A thread computes one vector of gate and up.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

template <typename S, int kWide>
__global__ void swiglu(const S* gate_up, S* a, int64_t vectors, int64_t width) {
  if (global_thread() >= vectors) return;
  const int64_t in_row = width / kWide, row = global_thread() / in_row;
  const int64_t column = global_thread() % in_row * kWide;
  const S* gate = gate_up + row * 2 * width + column;
  const Floats<kWide> g = load<kWide>(gate), u = load<kWide>(gate + width);
  Floats<kWide> result;
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) result.at[i] = g.at[i] * sigmoid(g.at[i]) * u.at[i];
  store<kWide>(a + row * width + column, result);
}

template <typename S, int kWide>
__global__ void swiglu_backward(const S* da, S* gate_up, S* a, int64_t vectors, int64_t width) {
  if (global_thread() >= vectors) return;
  const int64_t in_row = width / kWide, row = global_thread() / in_row;
  const int64_t column = global_thread() % in_row * kWide;
  S* gate = gate_up + row * 2 * width + column;
  const Floats<kWide> g = load<kWide>(gate), u = load<kWide>(gate + width);
  const Floats<kWide> d = load<kWide>(da + row * width + column);
  Floats<kWide> result, dg, du;
  SLUICE_UNROLL
  for (int i = 0; i < kWide; ++i) {
    const float s = sigmoid(g.at[i]), silu = g.at[i] * s;
    result.at[i] = silu * u.at[i];
    dg.at[i] = d.at[i] * u.at[i] * (s + silu * (1.0F - s));
    du.at[i] = d.at[i] * silu;
  }
  store<kWide>(a + row * width + column, result);
  store<kWide>(gate, dg);
  store<kWide>(gate + width, du);
}

}  // namespace

Status launch_swiglu(Element element, const void* gate_up, void* a, int64_t rows, int64_t width,
                     Stream stream) {
  return visit_element(element, [&]<typename S>() {
    const auto* in = static_cast<const S*>(gate_up);
    auto* out = static_cast<S*>(a);
    if (can_be_wide<S>(width, {gate_up, a})) {
      const int64_t vectors = rows * width / kWidest<S>;
      return launch(swiglu<S, kWidest<S>>, blocks_for(vectors), stream, in, out, vectors, width);
    }
    return launch(swiglu<S, 1>, blocks_for(rows * width), stream, in, out, rows * width, width);
  });
}

Status launch_swiglu_backward(Element element, const void* da, void* gate_up, void* a, int64_t rows,
                              int64_t width, Stream stream) {
  return visit_element(element, [&]<typename S>() {
    const auto* in = static_cast<const S*>(da);
    auto *changed = static_cast<S*>(gate_up), *out = static_cast<S*>(a);
    if (can_be_wide<S>(width, {da, gate_up, a})) {
      const int64_t vectors = rows * width / kWidest<S>;
      return launch(swiglu_backward<S, kWidest<S>>, blocks_for(vectors), stream, in, changed, out, vectors,
                    width);
    }
    return launch(swiglu_backward<S, 1>, blocks_for(rows * width), stream, in, changed, out, rows * width,
                  width);
  });
}

}  // namespace sluice::ops::kernels
