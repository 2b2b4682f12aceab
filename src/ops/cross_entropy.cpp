// R: rows (target tokens), V: columns of this vocabulary shard, S: shards, 3: maximum, sum, target logit.
//
// Shard s has m_s and z_s = Σ exp(l - m_s). The whole has m = max m_s and z = Σ_s z_s·exp(m_s - m):
//   loss = m + log z - l_target,    dloss/dl_v = exp(l_v - m)/z - [v = target],
// Stored values exp(l_v - m_s) become exp(l_v - m)/z by the row's factor exp(m_s - m)/z.
#include "ops/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include <limits>

#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace aten {

at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin) {
  const int64_t columns = logits_RV.size(1);
  const at::Tensor column_R = target_R - begin;
  const at::Tensor elsewhere_R = (column_R < 0).logical_or(column_R >= columns);
  const at::Tensor target_logit_R = logits_RV.gather(1, column_R.clamp(0, columns - 1).unsqueeze(1))
                                        .squeeze(1)
                                        .masked_fill(elsewhere_R, -std::numeric_limits<double>::infinity());
  const at::Tensor maximum_R = logits_RV.amax(1);
  at::Tensor exponentials_RV = logits_RV;
  exponentials_RV.sub_(maximum_R.unsqueeze(1)).exp_();
  return at::stack({maximum_R, exponentials_RV.sum(1), target_logit_R}, 1);
}

at::Tensor cross_entropy_gradient(const at::Tensor& exponentials_RV, const at::Tensor& shard_R3,
                                  const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin,
                                  at::ScalarType dtype) {
  const int64_t columns = exponentials_RV.size(1);
  const at::Tensor factor_R = (shard_R3.select(1, 0) - whole_R3.select(1, 0)).exp() / whole_R3.select(1, 1);
  at::Tensor gradient_RV = exponentials_RV;
  gradient_RV.mul_(factor_R.unsqueeze(1));
  const at::Tensor column_R = target_R - begin;
  const at::Tensor here_R = (column_R >= 0).logical_and(column_R < columns).to(gradient_RV.scalar_type());
  gradient_RV.scatter_add_(1, column_R.clamp(0, columns - 1).unsqueeze(1), -here_R.unsqueeze(1));
  return gradient_RV.to(dtype);
}

}  // namespace aten

namespace {

constexpr int64_t kEntropyGrain = 8192;

// Scans with independent partial results, as a single running maximum would not vectorise.
template <typename S>
SLUICE_SIMD_WIDE S exponentiate_row(S* logits, int64_t columns, S* sum) {
  S maximum = logits[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < columns; ++i) maximum = logits[i] > maximum ? logits[i] : maximum;
  S total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < columns; ++i) {
    const S e = vector_exp(logits[i] - maximum);
    logits[i] = e;
    total += e;
  }
  *sum = total;
  return maximum;
}

template <typename S>
SLUICE_SIMD void scale_row(S* values, int64_t columns, S factor) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) values[i] *= factor;
}

template <typename S>
void fused_exponentiate_rows(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin,
                             const at::Tensor& statistics_R3) {
  const int64_t columns = logits_RV.size(1);
  S* logits = logits_RV.mutable_data_ptr<S>();
  S* statistics = statistics_R3.mutable_data_ptr<S>();
  const int64_t* targets = target_R.const_data_ptr<int64_t>();
  at::parallel_for(0, logits_RV.size(0), kEntropyGrain / columns + 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t column = targets[row] - begin;
      const bool here = column >= 0 && column < columns;
      S* out = statistics + row * 3;
      out[2] = here ? logits[row * columns + column] : -std::numeric_limits<S>::infinity();
      out[0] = exponentiate_row<S>(logits + row * columns, columns, out + 1);
    }
  });
}

template <typename S>
void fused_gradient(const at::Tensor& exponentials_RV, const at::Tensor& factor_R, const at::Tensor& target_R,
                    int64_t begin) {
  const int64_t columns = exponentials_RV.size(1);
  S* values = exponentials_RV.mutable_data_ptr<S>();
  const S* factors = factor_R.const_data_ptr<S>();
  const int64_t* targets = target_R.const_data_ptr<int64_t>();
  at::parallel_for(0, exponentials_RV.size(0), kEntropyGrain / columns + 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      scale_row<S>(values + row * columns, columns, factors[row]);
      const int64_t column = targets[row] - begin;
      if (column >= 0 && column < columns) values[row * columns + column] -= S(1);
    }
  });
}

bool is_fusable(const at::Tensor& logits_RV, const at::Tensor& target_R) {
  return is_dense_cpu(logits_RV) && is_dense_cpu(target_R) && logits_RV.size(1) > 0;
}

}  // namespace

at::Tensor row_statistics(const at::Tensor& logits_RV, const at::Tensor& target_R, int64_t begin) {
  RECORD_USER_SCOPE("sluice::row_statistics");
  if constexpr (gpu::kBuilt) {
    if (gpu::can({logits_RV})) return gpu::row_statistics(logits_RV, target_R, begin);
  }
  if (!is_fusable(logits_RV, target_R)) return aten::row_statistics(logits_RV, target_R, begin);
  at::Tensor statistics_R3 = at::empty({logits_RV.size(0), 3}, logits_RV.options());
  AT_DISPATCH_FLOATING_TYPES(logits_RV.scalar_type(), "row_statistics", [&] {
    fused_exponentiate_rows<scalar_t>(logits_RV, target_R, begin, statistics_R3);
  });
  return statistics_R3;
}

at::Tensor combine(const at::Tensor& statistics_SR3) {
  if (statistics_SR3.size(0) == 1) return statistics_SR3.select(0, 0);
  const at::Tensor maximum_R = statistics_SR3.select(2, 0).amax(0);
  const at::Tensor target_logit_R = statistics_SR3.select(2, 2).amax(0);
  at::Tensor sum_R = at::zeros_like(maximum_R);
  for (int64_t shard = 0; shard < statistics_SR3.size(0); ++shard) {
    const at::Tensor shard_R3 = statistics_SR3.select(0, shard);
    sum_R += shard_R3.select(1, 1) * (shard_R3.select(1, 0) - maximum_R).exp();
  }
  return at::stack({maximum_R, sum_R, target_logit_R}, 1);
}

at::Tensor token_losses(const at::Tensor& whole_R3) {
  const at::Tensor wide_R3 = whole_R3.to(at::kDouble);
  return wide_R3.select(1, 0) - wide_R3.select(1, 2) + wide_R3.select(1, 1).log();
}

at::Tensor cross_entropy_gradient(const at::Tensor& logits_RV, const at::Tensor& shard_R3,
                                  const at::Tensor& whole_R3, const at::Tensor& target_R, int64_t begin,
                                  at::ScalarType dtype) {
  RECORD_USER_SCOPE("sluice::cross_entropy_gradient");
  if constexpr (gpu::kBuilt) {
    if (gpu::can({logits_RV})) {
      return gpu::cross_entropy_gradient(logits_RV, whole_R3, target_R, begin, dtype);
    }
  }
  if (!is_fusable(logits_RV, target_R)) {
    return aten::cross_entropy_gradient(logits_RV, shard_R3, whole_R3, target_R, begin, dtype);
  }
  const at::Tensor factor_R = (shard_R3.select(1, 0) - whole_R3.select(1, 0)).exp() / whole_R3.select(1, 1);
  AT_DISPATCH_FLOATING_TYPES(logits_RV.scalar_type(), "cross_entropy_gradient",
                             [&] { fused_gradient<scalar_t>(logits_RV, factor_R, target_R, begin); });
  return logits_RV.to(dtype);
}

namespace {

// In place. On a CPU a product of two types is computed on copies as wide as the wider one, which would be
// more than the logits themselves: factors are rounded to float beside floats, and narrower rows are taken
// one by one.
void scale_rows(const at::Tensor& x_RV, const at::Tensor& factor_R) {
  const bool is_float = x_RV.is_cpu() && x_RV.scalar_type() == at::kFloat;
  const at::Tensor factor_R1 = (is_float ? factor_R.to(at::kFloat) : factor_R).unsqueeze(1);
  if (!x_RV.is_cpu() || x_RV.scalar_type() == factor_R1.scalar_type()) {
    x_RV.mul_(factor_R1);
    return;
  }
  for (int64_t row = 0; row < x_RV.size(0); ++row) x_RV[row].mul_(factor_R1[row]);
}

}  // namespace

// softmax_R · (softmax − [target]) + (softmax_R − factor_R) · [target].
void scale_cross_entropy_gradient(const at::Tensor& dlogits_RV, const at::Tensor& softmax_R,
                                  const at::Tensor& factor_R, const at::Tensor& target_R, int64_t begin) {
  if (!softmax_R.defined() && !factor_R.defined()) return;
  const at::Tensor& given_R = softmax_R.defined() ? softmax_R : factor_R;
  const auto or_one = [&](const at::Tensor& factor) {
    return factor.defined() ? factor : at::ones_like(given_R);
  };
  const at::Tensor rest_R = or_one(softmax_R) - or_one(factor_R);
  if (softmax_R.defined()) scale_rows(dlogits_RV, softmax_R);
  const at::Tensor column_R = target_R - begin;
  const at::Tensor here_R = column_R.ge(0).logical_and(column_R.lt(dlogits_RV.size(1)));
  const at::Tensor added_R = at::where(here_R, rest_R, at::zeros_like(rest_R));
  dlogits_RV.scatter_add_(1, column_R.clamp(0, dlogits_RV.size(1) - 1).unsqueeze(1),
                          added_R.to(dlogits_RV.scalar_type()).unsqueeze(1));
}

}  // namespace sluice::ops
