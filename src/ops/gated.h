// Loops of gated activations (ops/swiglu.h, ops/geglu.h) over rows on the CPU, in parallel.
// T: rows, F: width, G = 2F: gate and up side by side.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "ops/simd.h"

namespace sluice::ops {

constexpr int64_t kGatedGrainElements = 4096;

// Returns a_TF; `rows_of(gate_up, a, rows, width)` computes some of its rows.
template <typename RowsOf>
at::Tensor gated_forward(const at::Tensor& gate_up_TG, RowsOf rows_of) {
  const int64_t rows = gate_up_TG.size(0), width = gate_up_TG.size(1) / 2;
  at::Tensor a_TF = at::empty({rows, width}, gate_up_TG.options());
  SLUICE_DISPATCH(gate_up_TG, "a gated activation", [&] {
    const scalar_t* gate_up = gate_up_TG.const_data_ptr<scalar_t>();
    scalar_t* a = a_TF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kGatedGrainElements / width + 1, [&](int64_t begin, int64_t end) {
      rows_of(gate_up + begin * 2 * width, a + begin * width, end - begin, width);
    });
  });
  return a_TF;
}

// Returns a_TF and leaves gradients in gate_up_TG; `rows_of(da, gate_up, a, rows, width)` computes some rows.
template <typename RowsOf>
at::Tensor gated_backward(const at::Tensor& da_TF, const at::Tensor& gate_up_TG, RowsOf rows_of) {
  const int64_t rows = da_TF.size(0), width = da_TF.size(1);
  at::Tensor a_TF = at::empty({rows, width}, da_TF.options());
  SLUICE_DISPATCH(da_TF, "a gated activation's gradient", [&] {
    const scalar_t* da = da_TF.const_data_ptr<scalar_t>();
    scalar_t* gate_up = gate_up_TG.mutable_data_ptr<scalar_t>();
    scalar_t* a = a_TF.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, kGatedGrainElements / width + 1, [&](int64_t begin, int64_t end) {
      rows_of(da + begin * width, gate_up + begin * 2 * width, a + begin * width, end - begin, width);
    });
  });
  return a_TF;
}

}  // namespace sluice::ops
