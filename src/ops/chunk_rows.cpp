#include "ops/chunk_rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <vector>

#include "ops/cuda/gpu.h"
#include "ops/simd.h"

namespace sluice::ops {
namespace aten {
namespace {

at::Tensor with_row_of_zeros(const at::Tensor& x_TX) {
  std::vector<int64_t> one = x_TX.sizes().vec();
  one.front() = 1;
  return at::cat({x_TX, at::zeros(one, x_TX.options())});
}

}  // namespace

at::Tensor rows_in_chunks(const at::Tensor& x_THW, const RecurrenceChunks& chunks, int64_t heads) {
  const int64_t own = x_THW.size(1);
  at::Tensor all = with_row_of_zeros(x_THW).index_select(0, chunks.row_M);
  const int64_t count = all.size(0) / chunks.chunk;
  all = all.view({count, chunks.chunk, own, -1}).transpose(1, 2);
  if (own != heads) all = all.repeat_interleave(heads / own, 1);
  return all.to(accumulator_type(x_THW)).reshape({count * heads, chunks.chunk, -1});
}

at::Tensor rows_of_chunks(const at::Tensor& x_BCW, const RecurrenceChunks& chunks, int64_t heads,
                          int64_t summed) {
  const int64_t count = x_BCW.size(0) / heads;
  const at::Tensor places =
      x_BCW.view({count, heads, chunks.chunk, -1}).transpose(1, 2).reshape({-1, heads, x_BCW.size(2)});
  const at::Tensor x_THW = with_row_of_zeros(places).index_select(0, chunks.place_T);
  if (summed == 1) return x_THW;
  return x_THW.view({x_THW.size(0), heads / summed, summed, x_THW.size(2)}).sum(2);
}

}  // namespace aten

at::Tensor rows_in_chunks(const at::Tensor& x_THW, const RecurrenceChunks& chunks, int64_t heads) {
  RECORD_USER_SCOPE("sluice::rows_in_chunks");
  if constexpr (gpu::kBuilt) {
    if (const at::Tensor moved = gpu::rows_in_chunks(x_THW, chunks, heads); moved.defined()) return moved;
  }
  return aten::rows_in_chunks(x_THW, chunks, heads);
}

at::Tensor rows_of_chunks(const at::Tensor& x_BCW, const RecurrenceChunks& chunks, int64_t heads,
                          int64_t summed) {
  RECORD_USER_SCOPE("sluice::rows_of_chunks");
  if constexpr (gpu::kBuilt) {
    if (const at::Tensor moved = gpu::rows_of_chunks(x_BCW, chunks, heads, summed); moved.defined())
      return moved;
  }
  return aten::rows_of_chunks(x_BCW, chunks, heads, summed);
}

}  // namespace sluice::ops
