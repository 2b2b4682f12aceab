// T: rows, A and B: the two widths of a matrix.
//
// y = x·w:  dx = dy·wᵀ, dw = xᵀ·dy.     y = x·wᵀ:  dx = dy·w, dw = dyᵀ·x.
#include "ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "ops/simd.h"
#ifdef SLUICE_CUDA
#include "ops/libraries/cublaslt.h"
#endif

namespace sluice::ops {

at::Tensor times(const at::Tensor& x_TA, const at::Tensor& w_AB) { return at::mm(x_TA, w_AB); }

at::Tensor times_transposed(const at::Tensor& x_TA, const at::Tensor& w_BA) { return at::mm(x_TA, w_BA.t()); }

void times_transposed_into(const at::Tensor& y_TB, const at::Tensor& x_TA, const at::Tensor& w_BA) {
  at::Tensor target_TB = y_TB;
  at::mm_out(target_TB, x_TA, w_BA.t());
}

at::Tensor add_times(const at::Tensor& base_TB, const at::Tensor& x_TA, const at::Tensor& w_AB) {
#ifdef SLUICE_CUDA
  if (x_TA.is_cuda()) {  // here ATen would copy the base into the result first
    at::Tensor y_TB = at::empty_like(base_TB);
    if (cublaslt::add_product(base_TB, x_TA, w_AB, y_TB)) return y_TB;
  }
#endif
  return at::addmm(base_TB, x_TA, w_AB);
}

at::Tensor wide_times_transposed(const at::Tensor& x_TA, const at::Tensor& w_BA) {
  const at::ScalarType wide = accumulator_type(x_TA);
  if (x_TA.scalar_type() == wide) return at::mm(x_TA, w_BA.t());
  if (x_TA.is_cuda()) return at::mm(x_TA, w_BA.t(), wide);
  return at::mm(x_TA, w_BA.t()).to(wide);
}

namespace {

// CPUs without a mixed-precision product multiply wide copies, of so many numbers of `a` at once that a
// head's logits have no third copy.
constexpr int64_t kWideAtOnce = int64_t{1} << 18;

void accumulate_in_parts(const at::Tensor& gradient_AB, const at::Tensor& a_TA, const at::Tensor& b_TB) {
  const at::ScalarType wide = gradient_AB.scalar_type();
  const at::Tensor wide_TB = b_TB.to(wide);
  const int64_t rows = std::max<int64_t>(1, kWideAtOnce / std::max<int64_t>(1, a_TA.size(0)));
  for (int64_t begin = 0; begin < a_TA.size(1); begin += rows) {
    const int64_t count = std::min(rows, a_TA.size(1) - begin);
    at::Tensor target_AB = gradient_AB.narrow(0, begin, count);
    at::addmm_out(target_AB, target_AB, a_TA.narrow(1, begin, count).to(wide).t(), wide_TB);
  }
}

}  // namespace

void accumulate_weight_gradient(const at::Tensor& gradient_AB, const at::Tensor& a_TA,
                                const at::Tensor& b_TB) {
#ifdef SLUICE_CUDA
  if (a_TA.is_cuda() && cublaslt::add_product(gradient_AB, a_TA.t(), b_TB, gradient_AB)) return;
#endif
  at::Tensor target_AB = gradient_AB;
  if (a_TA.scalar_type() == gradient_AB.scalar_type()) {
    at::addmm_out(target_AB, gradient_AB, a_TA.t(), b_TB);
  } else if (a_TA.is_cuda()) {
    at::addmm_out(target_AB, gradient_AB, a_TA.t(), b_TB, gradient_AB.scalar_type(), /*beta=*/1, /*alpha=*/1);
  } else {
    accumulate_in_parts(gradient_AB, a_TA, b_TB);
  }
}

}  // namespace sluice::ops
