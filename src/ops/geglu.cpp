// T: rows, F: width, G = 2F: gate and up side by side.
//
// With t = tanh(z) and z = c·(g + k·g³), GELU is gelu(g) = g·(1 + t)/2. Gradients of a = gelu(g)·u:
//   gelu'(g) = (1 + t)/2 + g·(1 - t²)/2 · c·(1 + 3·k·g²);    dg = da · u · gelu'(g),    du = da · gelu(g).
#include "ops/geglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>

#include <cmath>
#include <numbers>

#include "ops/gated.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

constexpr double kCubic = 0.044715;
constexpr double kSlope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
template <typename A>
[[gnu::always_inline]] inline A bend(A g) {
  return vector_tanh(A(kSlope) * (g + A(kCubic) * g * g * g));
}

template <typename S, typename A>
SLUICE_SIMD_WIDE void geglu_rows(const S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      a[i] = narrow<S>(A(0.5) * g * (A(1) + bend(g)) * static_cast<A>(gate_up[width + i]));
    }
  }
}

template <typename S, typename A>
SLUICE_SIMD_WIDE void geglu_backward_rows(const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width, da += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      const A u = static_cast<A>(gate_up[width + i]);
      const A d = static_cast<A>(da[i]);
      const A t = bend(g);
      const A half = A(0.5) * (A(1) + t);
      const A slope = A(kSlope) * (A(1) + A(3 * kCubic) * g * g);
      a[i] = narrow<S>(g * half * u);
      gate_up[i] = narrow<S>(d * u * (half + A(0.5) * g * (A(1) - t * t) * slope));
      gate_up[width + i] = narrow<S>(d * g * half);
    }
  }
}

}  // namespace

namespace aten {

at::Tensor geglu(const at::Tensor& gate_up_TG) {
  const int64_t width = gate_up_TG.size(1) / 2;
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor g = wide_TG.narrow(1, 0, width), u = wide_TG.narrow(1, width, width);
  const at::Tensor t = at::tanh(kSlope * (g + kCubic * g * g * g));
  return (0.5 * g * (1 + t) * u).to(gate_up_TG.scalar_type());
}

at::Tensor geglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  const int64_t width = da_TF.size(1);
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor g = wide_TG.narrow(1, 0, width), u = wide_TG.narrow(1, width, width);
  const at::Tensor t = at::tanh(kSlope * (g + kCubic * g * g * g));
  const at::Tensor half = 0.5 * (1 + t);
  const at::Tensor derivative = half + 0.5 * g * (1 - t * t) * (kSlope * (1 + 3 * kCubic * g * g));
  const at::Tensor a_TF = (g * half * u).to(da_TF.scalar_type());
  const at::Tensor dgate_TF = da_TF * u * derivative, dup_TF = da_TF * (g * half);
  gate_up_TG.narrow(1, 0, width).copy_(dgate_TF);
  gate_up_TG.narrow(1, width, width).copy_(dup_TF);
  return a_TF;
}

}  // namespace aten

at::Tensor geglu(const at::Tensor& gate_up_TG) {
  if (!is_dense_cpu(gate_up_TG)) return aten::geglu(gate_up_TG);
  return gated_forward(gate_up_TG, []<typename S>(const S* gate_up, S* a, int64_t rows, int64_t width) {
    geglu_rows<S, at::opmath_type<S>>(gate_up, a, rows, width);
  });
}

at::Tensor geglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  if (!is_dense_cpu(gate_up_TG) || !is_dense_cpu(da_TF)) return aten::geglu_backward(da_TF, gate_up_TG);
  return gated_backward(da_TF, gate_up_TG,
                        []<typename S>(const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
                          geglu_backward_rows<S, at::opmath_type<S>>(da, gate_up, a, rows, width);
                        });
}

}  // namespace sluice::ops
