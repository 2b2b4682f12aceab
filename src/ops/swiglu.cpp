// T: rows, F: width, G = 2F: gate and up side by side.
//
// With silu(g) = g·σ(g), silu'(g) = σ(g)·(1 + g·(1 - σ(g))). Gradients of a = silu(g)·u:
//   dg = da · u · silu'(g),    du = da · silu(g).
#include "ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "ops/gated.h"
#include "ops/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace aten {

at::Tensor swiglu(const at::Tensor& gate_up_TG) {
  const int64_t width = gate_up_TG.size(1) / 2;
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor gate_TF = wide_TG.narrow(1, 0, width);
  const at::Tensor up_TF = wide_TG.narrow(1, width, width);
  return (gate_TF * at::sigmoid(gate_TF) * up_TF).to(gate_up_TG.scalar_type());
}

at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  const int64_t width = da_TF.size(1);
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor gate_TF = wide_TG.narrow(1, 0, width);
  const at::Tensor up_TF = wide_TG.narrow(1, width, width);
  const at::Tensor sigmoid_TF = at::sigmoid(gate_TF);
  const at::Tensor silu_TF = gate_TF * sigmoid_TF;
  const at::Tensor dgate_TF = da_TF * up_TF * (sigmoid_TF + silu_TF * (1 - sigmoid_TF));
  const at::Tensor a_TF = (silu_TF * up_TF).to(da_TF.scalar_type());
  const at::Tensor dup_TF = da_TF * silu_TF;
  gate_up_TG.narrow(1, 0, width).copy_(dgate_TF);
  gate_up_TG.narrow(1, width, width).copy_(dup_TF);
  return a_TF;
}

}  // namespace aten

namespace {

template <typename S, typename A>
SLUICE_SIMD_WIDE void swiglu_rows(const S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      a[i] = narrow<S>(g * vector_sigmoid(g) * static_cast<A>(gate_up[width + i]));
    }
  }
}

template <typename S, typename A>
SLUICE_SIMD_WIDE void swiglu_backward_rows(const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width, da += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      const A u = static_cast<A>(gate_up[width + i]);
      const A d = static_cast<A>(da[i]);
      const A sigmoid = vector_sigmoid(g);
      const A silu = g * sigmoid;
      a[i] = narrow<S>(silu * u);
      gate_up[i] = narrow<S>(d * u * (sigmoid + silu * (A(1) - sigmoid)));
      gate_up[width + i] = narrow<S>(d * silu);
    }
  }
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up_TG) {
  if constexpr (gpu::kBuilt) {
    if (gpu::can({gate_up_TG})) return gpu::swiglu(gate_up_TG);
  }
  if (!is_dense_cpu(gate_up_TG)) return aten::swiglu(gate_up_TG);
  return gated_forward(gate_up_TG, []<typename S>(const S* gate_up, S* a, int64_t rows, int64_t width) {
    swiglu_rows<S, at::opmath_type<S>>(gate_up, a, rows, width);
  });
}

at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  if constexpr (gpu::kBuilt) {
    if (gpu::can({da_TF, gate_up_TG})) return gpu::swiglu_backward(da_TF, gate_up_TG);
  }
  if (!is_dense_cpu(gate_up_TG) || !is_dense_cpu(da_TF)) return aten::swiglu_backward(da_TF, gate_up_TG);
  return gated_backward(da_TF, gate_up_TG,
                        []<typename S>(const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
                          swiglu_backward_rows<S, at::opmath_type<S>>(da, gate_up, a, rows, width);
                        });
}

}  // namespace sluice::ops
