// T: rows, F: width, G = 2F: gate and up side by side.
//
// a = (u' + 1)·g'·s with g' = min(g, L), u' = min(max(u, −L), L), s = σ(α·g'). Beyond the cuts there is no
// gradient; within:
//   dg = da·(u' + 1)·s·(1 + α·g'·(1 − s)),    du = da·g'·s.
#include "ops/clamped_swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "ops/gated.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace {

template <typename S, typename A>
SLUICE_SIMD_WIDE void clamped_rows(const S* gate_up, S* a, int64_t rows, int64_t width, A alpha, A limit) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A gate = static_cast<A>(gate_up[i]), up = static_cast<A>(gate_up[width + i]);
      const A g = gate > limit ? limit : gate;
      const A u = up > limit ? limit : up < -limit ? -limit : up;
      a[i] = narrow<S>((u + A(1)) * g * vector_sigmoid(alpha * g));
    }
  }
}

template <typename S, typename A>
SLUICE_SIMD_WIDE void clamped_backward_rows(const S* da, S* gate_up, S* a, int64_t rows, int64_t width,
                                            A alpha, A limit) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width, da += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A gate = static_cast<A>(gate_up[i]), up = static_cast<A>(gate_up[width + i]);
      const A d = static_cast<A>(da[i]);
      const A g = gate > limit ? limit : gate;
      const A u = up > limit ? limit : up < -limit ? -limit : up;
      const A s = vector_sigmoid(alpha * g);
      const A dg = d * (u + A(1)) * s * (A(1) + alpha * g * (A(1) - s));
      const A du = d * g * s;
      a[i] = narrow<S>((u + A(1)) * g * s);
      gate_up[i] = narrow<S>(gate > limit ? A(0) : dg);
      gate_up[width + i] = narrow<S>(up > limit || up < -limit ? A(0) : du);
    }
  }
}

}  // namespace

namespace aten {

at::Tensor clamped_swiglu(const at::Tensor& gate_up_TG, const ClampedSwiglu& options) {
  const int64_t width = gate_up_TG.size(1) / 2;
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor g = wide_TG.narrow(1, 0, width).clamp_max(options.limit);
  const at::Tensor u = wide_TG.narrow(1, width, width).clamp(-options.limit, options.limit);
  return ((u + 1) * g * at::sigmoid(options.alpha * g)).to(gate_up_TG.scalar_type());
}

at::Tensor clamped_swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG,
                                   const ClampedSwiglu& options) {
  const int64_t width = gate_up_TG.size(1) / 2;
  const at::Tensor wide_TG = gate_up_TG.to(accumulator_type(gate_up_TG));
  const at::Tensor gate = wide_TG.narrow(1, 0, width), up = wide_TG.narrow(1, width, width);
  const at::Tensor g = gate.clamp_max(options.limit), u = up.clamp(-options.limit, options.limit);
  const at::Tensor s = at::sigmoid(options.alpha * g);
  const at::Tensor dgate_TF =
      da_TF * (u + 1) * s * (1 + options.alpha * g * (1 - s)) * gate.le(options.limit);
  const at::Tensor dup_TF = da_TF * g * s * up.abs().le(options.limit);
  const at::Tensor a_TF = ((u + 1) * g * s).to(da_TF.scalar_type());
  gate_up_TG.narrow(1, 0, width).copy_(dgate_TF);
  gate_up_TG.narrow(1, width, width).copy_(dup_TF);
  return a_TF;
}

}  // namespace aten

at::Tensor clamped_swiglu(const at::Tensor& gate_up_TG, const ClampedSwiglu& options) {
  if (!is_dense_cpu(gate_up_TG)) return aten::clamped_swiglu(gate_up_TG, options);
  return gated_forward(gate_up_TG, [&]<typename S>(const S* gate_up, S* a, int64_t rows, int64_t width) {
    using A = at::opmath_type<S>;
    clamped_rows<S, A>(gate_up, a, rows, width, static_cast<A>(options.alpha), static_cast<A>(options.limit));
  });
}

at::Tensor clamped_swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG,
                                   const ClampedSwiglu& options) {
  if (!is_dense_cpu(gate_up_TG) || !is_dense_cpu(da_TF))
    return aten::clamped_swiglu_backward(da_TF, gate_up_TG, options);
  return gated_backward(
      da_TF, gate_up_TG, [&]<typename S>(const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
        using A = at::opmath_type<S>;
        clamped_backward_rows<S, A>(da, gate_up, a, rows, width, static_cast<A>(options.alpha),
                                    static_cast<A>(options.limit));
      });
}

}  // namespace sluice::ops
