// T: rows, F: width, G = 2F: gate and up side by side.
//
// a = silu(g)·u with silu(g) = g·σ(g) and silu'(g) = σ(g)·(1 + g·(1 - σ(g))):
//   dg = da · u · silu'(g),    du = da · silu(g).
#include "ops/swiglu.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>

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

constexpr int64_t kGrainElements = 4096;

template <typename S, typename A>
SLUICE_SIMD void swiglu_rows(const S* gate_up, S* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width) {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A g = static_cast<A>(gate_up[i]);
      a[i] = narrow<S>(g * vector_sigmoid(g) * static_cast<A>(gate_up[width + i]));
    }
  }
}

template <typename S, typename A>
SLUICE_SIMD void swiglu_backward_rows(const S* da, S* gate_up, S* a, int64_t rows, int64_t width) {
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
  const int64_t rows = gate_up_TG.size(0), width = gate_up_TG.size(1) / 2;
  at::Tensor a_TF = at::empty({rows, width}, gate_up_TG.options());
  SLUICE_DISPATCH(gate_up_TG, "swiglu", [&] {
    const scalar_t* gate_up = gate_up_TG.const_data_ptr<scalar_t>();
    scalar_t* a = a_TF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kGrainElements / width + 1, [&](int64_t begin, int64_t end) {
      swiglu_rows<scalar_t, at::opmath_type<scalar_t>>(gate_up + begin * 2 * width, a + begin * width,
                                                       end - begin, width);
    });
  });
  return a_TF;
}

at::Tensor swiglu_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG) {
  if constexpr (gpu::kBuilt) {
    if (gpu::can({da_TF, gate_up_TG})) return gpu::swiglu_backward(da_TF, gate_up_TG);
  }
  if (!is_dense_cpu(gate_up_TG) || !is_dense_cpu(da_TF)) return aten::swiglu_backward(da_TF, gate_up_TG);
  const int64_t rows = da_TF.size(0), width = da_TF.size(1);
  at::Tensor a_TF = at::empty({rows, width}, da_TF.options());
  SLUICE_DISPATCH(da_TF, "swiglu_backward", [&] {
    const scalar_t* da = da_TF.const_data_ptr<scalar_t>();
    scalar_t* gate_up = gate_up_TG.mutable_data_ptr<scalar_t>();
    scalar_t* a = a_TF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kGrainElements / width + 1, [&](int64_t begin, int64_t end) {
      swiglu_backward_rows<scalar_t, at::opmath_type<scalar_t>>(
          da + begin * width, gate_up + begin * 2 * width, a + begin * width, end - begin, width);
    });
  });
  return a_TF;
}

}  // namespace sluice::ops
