// Kernels for ops/state_pass.h, and for products of rows that decay by channel (ops/recurrence.h). A chunk
// needs only the state of another chunk, so a block takes some columns of one head's states through all
// chunks of a piece. Row data pass through shared memory a few keys at a time. Products of rows take an
// exponential for each pair of rows and key, whatever the decays: as many as multiply-adds.
#include "ops/cuda/kernel_parts.h"

namespace sluice::ops::kernels {
namespace {

constexpr int kRows = kMostChunkRows;
constexpr int kKeys = 32;     // keys per slice in shared memory
constexpr int kColumns = 16;  // columns of states per block
constexpr int kSteps = kThreads / kColumns;

// Keys [first, first + kKeys) of x [rows, keys]; zeros where there are none.
__device__ inline void load_slice(const float* x, int64_t rows, int64_t keys, int64_t first,
                                  float (*slice)[kKeys + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kKeys; i += kThreads) {
    const int row = i / kKeys, key = i % kKeys;
    slice[row][key] = row < rows && first + key < keys ? x[row * keys + first + key] : 0.0F;
  }
}

__global__ void pass_states(StatePass pass) {
  __shared__ float state[kMostKeys][kColumns];
  __shared__ float rows[kRows][kColumns];
  __shared__ float slice[kRows][kKeys + 1];
  const int64_t parts = (pass.columns + kColumns - 1) / kColumns;
  const int64_t task = blockIdx.x / parts, first_column = blockIdx.x % parts * kColumns;
  const int x = static_cast<int>(threadIdx.x) % kColumns, step = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t column = first_column + x;
  const bool there = column < pass.columns;
  float* const states = pass.state + task * pass.keys * pass.columns + column;
  for (int64_t k = step; k < pass.keys; k += kSteps) state[k][x] = there ? states[k * pass.columns] : 0.0F;
  __syncthreads();
  for (int64_t i = 0; i < pass.levels; ++i) {
    const int64_t level = pass.back ? pass.levels - 1 - i : i;
    const int64_t begin = pass.level_begins[level], end = pass.level_begins[level + 1];
    if (task >= (end - begin) * pass.heads) continue;  // skipped by all threads of the block
    const int64_t b = begin * pass.heads + task;
    float* const own = pass.rows + b * pass.chunk * pass.columns + column;
    // Compute what rows read of the state.
    float sum[kRows / kSteps] = {};
    if (pass.read != nullptr) {
      for (int64_t first = 0; first < pass.keys; first += kKeys) {
        load_slice(pass.read + b * pass.chunk * pass.keys, pass.chunk, pass.keys, first, slice);
        __syncthreads();
        const int keys = static_cast<int>(pass.keys - first < kKeys ? pass.keys - first : kKeys);
        for (int key = 0; key < keys; ++key) {
          const float value = state[first + key][x];
          SLUICE_UNROLL
          for (int r = 0; r < kRows / kSteps; ++r) sum[r] += slice[step + r * kSteps][key] * value;
        }
        __syncthreads();
      }
    }
    for (int r = 0; r < kRows / kSteps; ++r) {
      const int row = step + r * kSteps;
      const bool is_row = row < pass.chunk && there;
      const float value = (is_row ? own[row * pass.columns] : 0.0F) + pass.read_factor * sum[r];
      rows[row][x] = row < pass.chunk ? value : 0.0F;
      if (is_row && pass.read != nullptr) own[row * pass.columns] = value;
    }
    __syncthreads();
    // Compute the state behind the chunk.
    for (int64_t first = 0; first < pass.keys; first += kKeys) {
      if (pass.left != nullptr) {
        load_slice(pass.left + b * pass.chunk * pass.keys, pass.chunk, pass.keys, first, slice);
        __syncthreads();
      }
      for (int64_t key = step; key < kKeys && first + key < pass.keys; key += kSteps) {
        float more = 0;
        if (pass.left != nullptr) {
          for (int row = 0; row < kRows; ++row) more += slice[row][key] * rows[row][x];
        }
        const int64_t k = first + key, at = (b * pass.keys + k) * pass.columns + column;
        const float now = state[k][x], added = pass.added != nullptr && there ? pass.added[at] : 0.0F;
        if (pass.came != nullptr && there) pass.came[at] = now;
        state[k][x] =
            now * pass.end[b * pass.ends + (pass.ends == 1 ? 0 : k)] + added + pass.left_factor * more;
      }
      __syncthreads();
    }
  }
  for (int64_t k = step; k < pass.keys && there; k += kSteps) states[k * pass.columns] = state[k][x];
}

__global__ void decayed_products(DecayedProducts all) {
  __shared__ float a[kRows][kKeys + 1];
  __shared__ float b[kRows][kKeys + 1];
  __shared__ float sum[kRows][kKeys + 1];
  constexpr int kTile = 16, kTiles = kRows / kTile;
  const int64_t batch = blockIdx.x, of_rows = batch * all.rows * all.keys;
  const int i = static_cast<int>(threadIdx.x) / kTile, j = static_cast<int>(threadIdx.x) % kTile;
  float products[kTiles][kTiles] = {};
  for (int64_t first = 0; first < all.keys; first += kKeys) {
    load_slice(all.a + of_rows, all.rows, all.keys, first, a);
    load_slice(all.b + of_rows, all.rows, all.keys, first, b);
    load_slice(all.sum + of_rows, all.rows, all.keys, first, sum);
    __syncthreads();
    for (int key = 0; key < kKeys; ++key) {
      for (int p = 0; p < kTiles; ++p) {
        const int late = i + p * kTile;
        for (int q = 0; q <= p; ++q) {
          const int early = j + q * kTile;
          if (early <= late)
            products[p][q] += a[late][key] * b[early][key] * expf(sum[late][key] - sum[early][key]);
        }
      }
    }
    __syncthreads();
  }
  for (int p = 0; p < kTiles; ++p) {
    for (int q = 0; q < kTiles; ++q) {
      const int late = i + p * kTile, early = j + q * kTile;
      if (late < all.rows && early < all.rows)
        all.products[(batch * all.rows + late) * all.rows + early] = products[p][q];
    }
  }
}

// Each block computes kKeys keys.
__global__ void decayed_products_backward(DecayedProducts all) {
  __shared__ float a[kRows][kKeys + 1];
  __shared__ float b[kRows][kKeys + 1];
  __shared__ float sum[kRows][kKeys + 1];
  __shared__ float products[kRows][kRows + 1];
  const int64_t slices = (all.keys + kKeys - 1) / kKeys;
  const int64_t batch = blockIdx.x / slices, first = blockIdx.x % slices * kKeys;
  const int64_t of_rows = batch * all.rows * all.keys;
  load_slice(all.a + of_rows, all.rows, all.keys, first, a);
  load_slice(all.b + of_rows, all.rows, all.keys, first, b);
  load_slice(all.sum + of_rows, all.rows, all.keys, first, sum);
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kRows; i += kThreads) {
    const int late = i / kRows, early = i % kRows;
    const bool is_pair = late < all.rows && early <= late;
    products[late][early] = is_pair ? all.products[(batch * all.rows + late) * all.rows + early] : 0.0F;
  }
  __syncthreads();
  const int key = static_cast<int>(threadIdx.x) % kKeys;
  if (first + key >= all.keys) return;  // no synchronization follows
  for (int row = static_cast<int>(threadIdx.x) / kKeys; row < all.rows; row += kThreads / kKeys) {
    float da = 0, db = 0;
    for (int early = 0; early <= row; ++early)
      da += products[row][early] * b[early][key] * expf(sum[row][key] - sum[early][key]);
    for (int late = row; late < all.rows; ++late)
      db += products[late][row] * a[late][key] * expf(sum[late][key] - sum[row][key]);
    const int64_t at = of_rows + row * all.keys + first + key;
    all.da[at] += da;
    all.db[at] += db;
  }
}

}  // namespace

Status launch_pass_states(const StatePass& pass, Stream stream) {
  const int64_t parts = (pass.columns + kColumns - 1) / kColumns;
  return launch(pass_states, pass.tasks * parts, stream, pass);
}

Status launch_decayed_products(const DecayedProducts& products, Stream stream) {
  return launch(decayed_products, products.batch, stream, products);
}

Status launch_decayed_products_backward(const DecayedProducts& products, Stream stream) {
  const int64_t slices = (products.keys + kKeys - 1) / kKeys;
  return launch(decayed_products_backward, products.batch * slices, stream, products);
}

}  // namespace sluice::ops::kernels
