// T: rows, N: query heads, D: dimensions per head.
#include "ops/attention_merge.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <limits>

#include "ops/cuda/gpu.h"

namespace sluice::ops {

void merge(const AttentionResult& seen, const AttentionResult& more) {
  RECORD_USER_SCOPE("sluice::merge_attention");
  if constexpr (gpu::kBuilt) {
    if (gpu::merge(seen, more)) return;
  }
  aten::merge(seen, more);
}

// With lse = log(exp lse₁ + exp lse₂):  out = exp(lse₁ - lse)·out₁ + exp(lse₂ - lse)·out₂. If neither set has
// keys, both weights are zero: −∞ less −∞ is NaN.
void aten::merge(const AttentionResult& seen, const AttentionResult& more) {
  const at::Tensor lse_NT = at::logaddexp(seen.lse_NT, more.lse_NT);
  const auto share_TN1 = [&](const at::Tensor& of_NT) {
    return (of_NT - lse_NT).exp_().nan_to_num_(0.0).transpose(0, 1).unsqueeze(-1);
  };
  seen.out_TND.mul_(share_TN1(seen.lse_NT)).add_(more.out_TND * share_TN1(more.lse_NT));
  seen.lse_NT.copy_(lse_NT);
}

AttentionResult nothing_seen(const at::Tensor& q_TND) {
  const at::TensorOptions wide =
      q_TND.options().dtype(q_TND.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return {at::zeros(q_TND.sizes(), wide),
          at::full({q_TND.size(1), q_TND.size(0)}, -std::numeric_limits<double>::infinity(), wide),
          {}};
}

}  // namespace sluice::ops
