// The kernels of ops/chunk_rows.h, bound by memory. Some neighbouring threads of a warp move one head's
// numbers of one row, so that indices are found once for all of them.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

// Threads for each head of a row: a power of two.
int lanes_for(int64_t width) {
  int lanes = 1;
  while (lanes < 32 && lanes < width) lanes *= 2;
  return lanes;
}

__device__ inline int64_t part_of_thread(int lanes) { return global_thread() / lanes; }

template <typename S>
__global__ void rows_in_chunks(ChunkRows all, const S* rows, float* chunks, int lanes) {
  const int64_t part = part_of_thread(lanes);
  if (part >= all.places * all.heads) return;
  const int64_t place = part % all.chunk, of = part / all.chunk, head = of % all.heads;
  const int64_t row = all.index[of / all.heads * all.chunk + place];
  const S* const from = rows + row * all.row_stride + head / all.shared * all.head_stride;
  for (int64_t i = threadIdx.x % lanes; i < all.width; i += lanes)
    chunks[part * all.width + i] = row < all.rows ? widen(from[i]) : 0.0F;
}

__global__ void rows_of_chunks(ChunkRows all, const float* chunks, float* rows, int lanes) {
  const int64_t part = part_of_thread(lanes), groups = all.heads / all.shared;
  if (part >= all.rows * groups) return;
  const int64_t at = all.index[part / groups], group = part % groups;
  const int64_t first = (at / all.chunk * all.heads + group * all.shared) * all.chunk + at % all.chunk;
  for (int64_t i = threadIdx.x % lanes; i < all.width; i += lanes) {
    float sum = 0;
    for (int64_t head = 0; at < all.places && head < all.shared; ++head)
      sum += chunks[(first + head * all.chunk) * all.width + i];
    rows[part * all.width + i] = sum;
  }
}

}  // namespace

Status launch_rows_in_chunks(Element element, const ChunkRows& all, const void* rows, float* chunks,
                             Stream stream) {
  const int lanes = lanes_for(all.width);
  return visit_element(element, [&]<typename S>() {
    return launch(rows_in_chunks<S>, blocks_for(all.places * all.heads * lanes), stream, all,
                  static_cast<const S*>(rows), chunks, lanes);
  });
}

Status launch_rows_of_chunks(const ChunkRows& all, const float* chunks, float* rows, Stream stream) {
  const int lanes = lanes_for(all.width);
  return launch(rows_of_chunks, blocks_for(all.rows * (all.heads / all.shared) * lanes), stream, all, chunks,
                rows, lanes);
}

}  // namespace sluice::ops::kernels
