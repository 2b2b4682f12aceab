// T: rows (tokens), H: width, B: blocks of rows.
//
// With r = (mean(x²) + eps)^-1/2 and n = x·r, y = w·n, the offset in w. For g = w·dy, and dr/dx_j = -r³ x_j /
// H:
//   dx_j = r·g_j - (r³ x_j / H) Σ_i g_i x_i = r·(g_j - n_j · mean(g·n)),    dw_j = Σ_T dy_j n_j.
#include "ops/norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <cmath>

#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace aten {

RmsNorm rms_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset) {
  const at::ScalarType wide = accumulator_type(x_TH);
  const at::Tensor x_wide_TH = x_TH.to(wide);
  const at::Tensor inverse_rms_T = at::rsqrt(x_wide_TH.square().mean(-1) + eps);
  const at::Tensor y_TH = x_wide_TH * inverse_rms_T.unsqueeze(-1) * (weight_H.to(wide) + offset);
  return {y_TH.to(x_TH.scalar_type()), inverse_rms_T};
}

RmsNormGradient rms_norm_backward(const at::Tensor& dy_TH, const at::Tensor& x_TH, const at::Tensor& weight_H,
                                  const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                  const at::Tensor& dweight_H, double offset) {
  const at::ScalarType wide = accumulator_type(x_TH);
  const at::Tensor dy_wide_TH = dy_TH.to(wide);
  const at::Tensor weight_wide_H = weight_H.to(wide) + offset;
  const at::Tensor n_TH = x_TH.to(wide) * inverse_rms_T.unsqueeze(-1);
  const at::Tensor g_TH = dy_wide_TH * weight_wide_H;
  at::Tensor dx_TH = (g_TH - n_TH * (g_TH * n_TH).mean(-1, /*keepdim=*/true)) * inverse_rms_T.unsqueeze(-1);
  if (residual_TH.defined()) dx_TH.add_(residual_TH);
  dweight_H.add_((dy_wide_TH * n_TH).sum(0));
  return {dx_TH.to(x_TH.scalar_type()), (n_TH * weight_wide_H).to(x_TH.scalar_type())};
}

}  // namespace aten

namespace {

// Rows whose weight gradients are summed together: fixed, so that the order of sums is fixed, too.
constexpr int64_t kBlockRows = 64;
constexpr int64_t kNormGrain = 16384;

template <typename S, typename A>
SLUICE_SIMD void norm_rows(const S* x, const S* weight, S* y, A* inverse_rms, int64_t rows, int64_t width,
                           A eps, A offset) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    A squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) squares += static_cast<A>(x[i]) * static_cast<A>(x[i]);
    const A r = A(1) / std::sqrt(squares / static_cast<A>(width) + eps);
    inverse_rms[row] = r;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      y[i] = narrow<S>(static_cast<A>(x[i]) * r * (static_cast<A>(weight[i]) + offset));
    }
  }
}

template <typename S, typename A>
struct NormBackwardRows {
  const S* dy;
  const S* x;
  const S* weight;
  const A* inverse_rms;
  const S* residual;  // or null
  S* dx;
  S* y;
  int64_t width;
  A offset;
};

// Rows [begin, end); adds their weight gradient to `dweight`.
template <typename S, typename A>
SLUICE_SIMD void norm_backward_rows(const NormBackwardRows<S, A>& t, int64_t begin, int64_t end, A* dweight) {
  const int64_t width = t.width;
  const S* weight = t.weight;
  const A offset = t.offset;
  for (int64_t row = begin; row < end; ++row) {
    const S* dy = t.dy + row * width;
    const S* x = t.x + row * width;
    S* dx = t.dx + row * width;
    S* y = t.y + row * width;
    const A r = t.inverse_rms[row];
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t i = 0; i < width; ++i) {
      dot += static_cast<A>(dy[i]) * (static_cast<A>(weight[i]) + offset) * static_cast<A>(x[i]);
    }
    const A mean = dot * r / static_cast<A>(width);
    const S* residual = t.residual != nullptr ? t.residual + row * width : nullptr;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const A w = static_cast<A>(weight[i]) + offset;
      const A g = static_cast<A>(dy[i]);
      const A n = static_cast<A>(x[i]) * r;
      const A bypass = residual != nullptr ? static_cast<A>(residual[i]) : A(0);
      dx[i] = narrow<S>((g * w - n * mean) * r + bypass);
      y[i] = narrow<S>(n * w);
      dweight[i] += g * n;
    }
  }
}

RmsNorm fused_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset) {
  const int64_t rows = x_TH.size(0), width = x_TH.size(1);
  RmsNorm out{at::empty_like(x_TH), at::empty({rows}, x_TH.options().dtype(accumulator_type(x_TH)))};
  SLUICE_DISPATCH(x_TH, "rms_norm", [&] {
    using A = at::opmath_type<scalar_t>;
    const scalar_t* x = x_TH.const_data_ptr<scalar_t>();
    const scalar_t* weight = weight_H.const_data_ptr<scalar_t>();
    scalar_t* y = out.y_TH.mutable_data_ptr<scalar_t>();
    A* inverse_rms = out.inverse_rms_T.mutable_data_ptr<A>();
    at::parallel_for(0, rows, kNormGrain / width + 1, [&](int64_t begin, int64_t end) {
      norm_rows<scalar_t, A>(x + begin * width, weight, y + begin * width, inverse_rms + begin, end - begin,
                             width, static_cast<A>(eps), static_cast<A>(offset));
    });
  });
  return out;
}

template <typename S>
void fused_norm_backward(const NormBackwardRows<S, at::opmath_type<S>>& t, int64_t rows,
                         const at::Tensor& partial_BH) {
  using A = at::opmath_type<S>;
  A* partial = partial_BH.mutable_data_ptr<A>();
  const int64_t grain = kNormGrain / (t.width * kBlockRows) + 1;
  at::parallel_for(0, partial_BH.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min(rows, (block + 1) * kBlockRows);
      norm_backward_rows<S, A>(t, block * kBlockRows, last, partial + block * t.width);
    }
  });
}

}  // namespace

RmsNorm rms_norm(const at::Tensor& x_TH, const at::Tensor& weight_H, double eps, double offset) {
  RECORD_USER_SCOPE("sluice::rms_norm");
  if (is_dense_cpu(x_TH) && is_dense_cpu(weight_H)) return fused_norm(x_TH, weight_H, eps, offset);
  if constexpr (gpu::kBuilt) {
    RmsNorm out = gpu::can({x_TH, weight_H}) ? gpu::rms_norm(x_TH, weight_H, eps, offset) : RmsNorm{};
    if (out.y_TH.defined()) return out;
  }
  return aten::rms_norm(x_TH, weight_H, eps, offset);
}

RmsNormGradient rms_norm_backward(const at::Tensor& dy_TH, const at::Tensor& x_TH, const at::Tensor& weight_H,
                                  const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                  const at::Tensor& dweight_H, double offset) {
  if (!dweight_H.defined()) {
    return rms_norm_backward(
        dy_TH, x_TH, weight_H, inverse_rms_T, residual_TH,
        at::zeros(weight_H.sizes(), weight_H.options().dtype(accumulator_type(weight_H))), offset);
  }
  RECORD_USER_SCOPE("sluice::rms_norm_backward");
  if constexpr (gpu::kBuilt) {
    const bool takes_residual = !residual_TH.defined() || gpu::can({residual_TH});
    RmsNormGradient out;
    if (takes_residual && gpu::can({dy_TH, x_TH, weight_H})) {
      out = gpu::rms_norm_backward(dy_TH, x_TH, weight_H, inverse_rms_T, residual_TH, dweight_H, offset);
    }
    if (out.dx_TH.defined()) return out;
  }
  const bool dense_residual = !residual_TH.defined() || is_dense_cpu(residual_TH);
  if (!is_dense_cpu(dy_TH) || !is_dense_cpu(x_TH) || !is_dense_cpu(weight_H) || !dense_residual) {
    return aten::rms_norm_backward(dy_TH, x_TH, weight_H, inverse_rms_T, residual_TH, dweight_H, offset);
  }
  const int64_t rows = x_TH.size(0), width = x_TH.size(1);
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  RmsNormGradient out{at::empty_like(x_TH), at::empty_like(x_TH)};
  const at::Tensor partial_BH = at::zeros({blocks, width}, x_TH.options().dtype(accumulator_type(x_TH)));
  SLUICE_DISPATCH(x_TH, "rms_norm_backward", [&] {
    using A = at::opmath_type<scalar_t>;
    const NormBackwardRows<scalar_t, A> t{
        dy_TH.const_data_ptr<scalar_t>(),
        x_TH.const_data_ptr<scalar_t>(),
        weight_H.const_data_ptr<scalar_t>(),
        inverse_rms_T.const_data_ptr<A>(),
        residual_TH.defined() ? residual_TH.const_data_ptr<scalar_t>() : nullptr,
        out.dx_TH.mutable_data_ptr<scalar_t>(),
        out.y_TH.mutable_data_ptr<scalar_t>(),
        width,
        static_cast<A>(offset)};
    fused_norm_backward<scalar_t>(t, rows, partial_BH);
  });
  dweight_H.add_(partial_BH.sum(0));
  return out;
}

}  // namespace sluice::ops
