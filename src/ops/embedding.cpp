// T: rows (tokens), V: rows of the vocabulary shard, H: width.
//
// x_t = W[id_t], so dW[v] = Σ over t with id_t = v of dx_t.
#include "ops/embedding.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace aten {

at::Tensor embedding_lookup(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin) {
  const at::Tensor row_T = ids_T - row_begin;
  const at::Tensor here_T = (row_T >= 0).logical_and(row_T < weight_VH.size(0));
  const at::Tensor x_TH = weight_VH.index_select(0, row_T.clamp(0, weight_VH.size(0) - 1));
  return x_TH.masked_fill(here_T.logical_not().unsqueeze(1), 0);
}

void embedding_lookup_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                               const at::Tensor& dweight_VH) {
  const at::Tensor row_T = ids_T - row_begin;
  const at::Tensor here_T = (row_T >= 0).logical_and(row_T < dweight_VH.size(0));
  // Selecting this shard's rows would need their number on the host, and so wait for the device. All rows are
  // added instead, other shards' rows as zeros. The zeros are spread over the rows, because the terms of one
  // row are added one by one.
  const at::Tensor spread_T = at::arange(ids_T.size(0), ids_T.options()).remainder(dweight_VH.size(0));
  const at::Tensor term_TH = dx_TH.masked_fill(here_T.logical_not().unsqueeze(1), 0);
  // index_put_ sorts by row on devices, where index_add_ would add in any order.
  at::Tensor target_VH = dweight_VH;
  target_VH.index_put_({at::where(here_T, row_T, spread_T)}, term_TH.to(dweight_VH.scalar_type()),
                       /*accumulate=*/true);
}

}  // namespace aten

namespace {

constexpr int64_t kEmbeddingGrain = 32768;

template <typename S>
void fused_embedding(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin,
                     const at::Tensor& x_TH) {
  const int64_t width = weight_VH.size(1), rows = weight_VH.size(0);
  const S* weight = weight_VH.const_data_ptr<S>();
  const int64_t* ids = ids_T.const_data_ptr<int64_t>();
  S* x = x_TH.mutable_data_ptr<S>();
  at::parallel_for(0, ids_T.size(0), kEmbeddingGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = ids[i] - row_begin;
      if (row >= 0 && row < rows) {
        std::copy_n(weight + row * width, width, x + i * width);
      } else {
        std::fill_n(x + i * width, width, S(0));
      }
    }
  });
}

// Columns are divided over threads, so that one thread sums each row in the order of tokens.
template <typename S>
void fused_embedding_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                              const at::Tensor& dweight_VH) {
  using A = at::opmath_type<S>;
  const int64_t width = dweight_VH.size(1), rows = dweight_VH.size(0), tokens = ids_T.size(0);
  const S* dx = dx_TH.const_data_ptr<S>();
  const int64_t* ids = ids_T.const_data_ptr<int64_t>();
  A* dweight = dweight_VH.mutable_data_ptr<A>();
  at::parallel_for(0, width, kEmbeddingGrain / (tokens + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = ids[t] - row_begin;
      if (row < 0 || row >= rows) continue;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) dweight[row * width + i] += static_cast<A>(dx[t * width + i]);
    }
  });
}

}  // namespace

at::Tensor embedding_lookup(const at::Tensor& weight_VH, const at::Tensor& ids_T, int64_t row_begin) {
  RECORD_USER_SCOPE("sluice::embedding_lookup");
  if constexpr (gpu::kBuilt) {
    if (gpu::can({weight_VH})) return gpu::embedding_lookup(weight_VH, ids_T, row_begin);
  }
  if (!is_dense_cpu(weight_VH) || !is_dense_cpu(ids_T))
    return aten::embedding_lookup(weight_VH, ids_T, row_begin);
  at::Tensor x_TH = at::empty({ids_T.size(0), weight_VH.size(1)}, weight_VH.options());
  SLUICE_DISPATCH(weight_VH, "embedding",
                  [&] { fused_embedding<scalar_t>(weight_VH, ids_T, row_begin, x_TH); });
  return x_TH;
}

void embedding_lookup_backward(const at::Tensor& dx_TH, const at::Tensor& ids_T, int64_t row_begin,
                               const at::Tensor& dweight_VH) {
  RECORD_USER_SCOPE("sluice::embedding_lookup_backward");
  const bool wide = dweight_VH.scalar_type() == accumulator_type(dx_TH);
  if constexpr (gpu::kBuilt) {
    if (wide && gpu::can({dx_TH, dweight_VH})) {
      return gpu::embedding_lookup_backward(dx_TH, ids_T, row_begin, dweight_VH);
    }
  }
  if (!wide || !is_dense_cpu(dx_TH) || !is_dense_cpu(ids_T) || !is_dense_cpu(dweight_VH)) {
    return aten::embedding_lookup_backward(dx_TH, ids_T, row_begin, dweight_VH);
  }
  SLUICE_DISPATCH(dx_TH, "embedding_backward",
                  [&] { fused_embedding_backward<scalar_t>(dx_TH, ids_T, row_begin, dweight_VH); });
}

}  // namespace sluice::ops
