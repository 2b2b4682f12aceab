// M, N: rows of the operands; K: the summed dimension; P: K filled up to whole 16.
#include "ops/float8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <cmath>

#include "ops/cuda/gpu.h"
#include "ops/float8_format.h"
#ifdef SLUICE_CUDA
#include <ATen/ops/_scaled_mm.h>

#include "ops/libraries/scaled_mm.h"
#endif

namespace sluice::ops {
namespace {

int64_t filled_up(int64_t k) { return (k + kFloat8Multiple - 1) / kFloat8Multiple * kFloat8Multiple; }

Float8Rows rows_by_operators(const at::Tensor& x_RK) {
  const int64_t rows = x_RK.size(0), k = x_RK.size(1);
  at::Tensor wide_RK = x_RK.to(at::kFloat).contiguous();
  if (k == 0) {
    return {at::zeros({rows, 0}, wide_RK.options()).to(at::kFloat8_e4m3fn),
            at::zeros({rows, 1}, wide_RK.options())};
  }
  // Magnitudes would be a copy more.
  const at::Tensor most_R1 =
      at::maximum(at::amax(wide_RK, 1, /*keepdim=*/true), at::amin(wide_RK, 1, /*keepdim=*/true).neg());
  const at::Tensor finite_R1 = at::isfinite(most_R1), used_R1 = most_R1.clamp_min(kLeastRowMost);
  const at::Tensor inverse_R1 = at::where(finite_R1, kMostFloat8 / used_R1, 0.0);
  const bool is_copy = wide_RK.const_data_ptr() != x_RK.const_data_ptr();
  at::Tensor scaled_RP = (is_copy ? wide_RK.mul_(inverse_R1) : wide_RK * inverse_R1).nan_to_num_(0);
  if (filled_up(k) > k) scaled_RP = at::constant_pad_nd(scaled_RP, {0, filled_up(k) - k});
  return {scaled_RP.to(at::kFloat8_e4m3fn), (used_R1 / kMostFloat8).where(finite_R1, NAN)};
}

// For kernels: rows of adjacent numbers.
at::Tensor with_dense_rows(const at::Tensor& x_RK) {
  return x_RK.stride(1) == 1 || x_RK.size(1) == 1 ? x_RK : x_RK.contiguous();
}

Float8Rows room(int64_t rows, int64_t k, const at::TensorOptions& like) {
  return {at::empty({rows, filled_up(k)}, like.dtype(at::kFloat8_e4m3fn)),
          at::empty({rows, 1}, like.dtype(at::kFloat))};
}

bool is_transposed(const at::Tensor& x_RK) { return x_RK.stride(1) != 1 && x_RK.stride(0) == 1; }

// The factors' and the sums' type.
at::ScalarType wide_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor codes_product(const at::Tensor& left_MP, const at::Tensor& right_NP, at::ScalarType wide) {
  if (!left_MP.is_cuda()) return at::mm(left_MP.to(wide), right_NP.to(wide).t());
  return at::mm(left_MP.to(at::kBFloat16), right_NP.to(at::kBFloat16).t(), at::kFloat);
}

}  // namespace

Float8Rows float8_rows(const at::Tensor& x_RK) {
  if (is_transposed(x_RK)) return float8_columns(x_RK.t());
  RECORD_USER_SCOPE("sluice::float8_rows");
  if constexpr (gpu::kBuilt) {
    const at::Tensor dense_RK = with_dense_rows(x_RK);
    if (gpu::can_code(dense_RK)) {
      Float8Rows result = room(x_RK.size(0), x_RK.size(1), x_RK.options());
      gpu::float8_rows(dense_RK, result.code_RP, result.factor_R1);
      return result;
    }
  }
  return rows_by_operators(x_RK);
}

Float8Rows float8_columns(const at::Tensor& x_RK) {
  if (is_transposed(x_RK)) return float8_rows(x_RK.t());
  RECORD_USER_SCOPE("sluice::float8_columns");
  if constexpr (gpu::kBuilt) {
    const at::Tensor dense_RK = with_dense_rows(x_RK);
    if (gpu::can_code(dense_RK)) {
      Float8Rows result = room(x_RK.size(1), x_RK.size(0), x_RK.options());
      gpu::float8_columns(dense_RK, result.code_RP, result.factor_R1);
      return result;
    }
  }
  return rows_by_operators(x_RK.t());
}

at::Tensor float8_product(const Float8Rows& left_MK, const Float8Rows& right_NK, at::ScalarType dtype) {
  const at::Tensor &left_MP = left_MK.code_RP, &right_NP = right_NK.code_RP;
  if (left_MP.size(0) == 0 || left_MP.size(1) == 0)
    return at::zeros({left_MP.size(0), right_NP.size(0)}, left_MK.factor_R1.options().dtype(dtype));
  RECORD_USER_SCOPE("sluice::float8_product");
#ifdef SLUICE_CUDA
  if (left_MP.is_cuda() && gpu::supports_float8(left_MP.device()) && scaled_mm::takes(left_MP, right_NP)) {
    return at::_scaled_mm(left_MP, right_NP.t(), left_MK.factor_R1, right_NK.factor_R1.t(), /*bias=*/{},
                          /*scale_result=*/{}, at::kBFloat16, /*use_fast_accum=*/false)
        .to(dtype);
  }
#endif
  at::Tensor sums_MN = codes_product(left_MP, right_NP, wide_of(dtype));
  return sums_MN.mul_(left_MK.factor_R1).mul_(right_NK.factor_R1.t()).to(dtype);
}

void add_float8_product(const at::Tensor& sum_MN, const Float8Rows& left_MK, const Float8Rows& right_NK) {
  const at::ScalarType dtype = left_MK.code_RP.is_cuda() ? at::kBFloat16 : sum_MN.scalar_type();
  at::Tensor(sum_MN).add_(float8_product(left_MK, right_NK, dtype));
}

}  // namespace sluice::ops
