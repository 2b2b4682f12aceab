// Kernels for ops/state_pass.h, and for products of rows that decay by channel (ops/recurrence.h). A chunk
// needs only the state of another chunk, so a block takes some columns of one head's states through all
// chunks of a piece. Row data pass through shared memory a few keys at a time. Products of rows take an
// exponential for each pair of rows and key, whatever the decays: as many as multiply-adds.
#include <algorithm>

#include "ops/cuda/kernel_parts.h"
#include "ops/cuda/tensor_products.h"

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

// Elements of a slice of reads or lefts that each thread moves. They arrive in its registers while other
// warps still multiply the slice before.
constexpr int kMoved = 8;
constexpr int kLeftRows = 16, kLeftKeys = kWarps * kTile;  // of a slice of `left`; a warp computes kTile keys
static_assert(kRows * kKeys == kThreads * kMoved && kLeftRows * kLeftKeys == kThreads * kMoved);
// Strides, in floats, by which threads of a warp find their elements of a tile in different banks.
constexpr int kStateStride = kColumns + 8, kReadStride = kKeys + 4, kLeftStride = kLeftKeys + 8;
constexpr int kRowTiles = kRows / kTile, kParts = kWarps / kRowTiles;
static_assert(kParts == 2 && kColumns == kTile);

// A block's memory. Padding is never read; rows, keys and columns that do not exist are 0.
struct alignas(32) PassMemory {
  float state[kMostKeys * kStateStride];
  float rows[kRows * kStateStride];
  // Some of read [rows, keys] or of left [rows, keys]; then the rows' second sum.
  float slice[std::max({kRows * kReadStride, kLeftRows* kLeftStride, kRows* kStateStride})];
};

// A block's columns of one head of a piece, and this thread's place in elementwise work.
struct PassPlace {
  int task, column;
  int x, step;  // column and first row or key; more follow every kSteps
  bool there;   // false: the column does not exist
};

// This thread's elements of the slice of x [rows, keys] that begins at a row and a key.
template <int kWide>
__device__ inline Floats<kMoved> fetch(const float* x, int rows, int keys, int first_row, int first_key) {
  const int key = first_key + static_cast<int>(threadIdx.x) % kWide;
  const int row = first_row + static_cast<int>(threadIdx.x) / kWide;
  constexpr int kStep = kThreads / kWide;
  x += row * keys + key;
  Floats<kMoved> moved;
  SLUICE_UNROLL
  for (int i = 0; i < kMoved; ++i)
    moved.at[i] = row + i * kStep < rows && key < keys ? x[i * kStep * keys] : 0.0F;
  return moved;
}
template <int kWide>
__device__ inline void put(const Floats<kMoved>& moved, int stride, float* slice) {
  slice += static_cast<int>(threadIdx.x) / kWide * stride + static_cast<int>(threadIdx.x) % kWide;
  SLUICE_UNROLL
  for (int i = 0; i < kMoved; ++i) slice[i * (kThreads / kWide) * stride] = moved.at[i];
}

// Computes what rows read of the state: two warps a tile, each with half of every slice's keys. Leaves one
// sum in `rows` and the other in `slice`.
__device__ inline void read_state(const StatePass& pass, int64_t b, PassMemory& memory) {
  const int rows = static_cast<int>(pass.chunk), keys = static_cast<int>(pass.keys);
  const float* const read = pass.read + b * rows * keys;
  const int warp = static_cast<int>(threadIdx.x) / 32, row = warp % kRowTiles * kTile,
            part = warp / kRowTiles;
  TileSum sum;
  clear(sum);
  for (int first = 0; first < keys; first += kKeys) {
    const Floats<kMoved> moved = fetch<kKeys>(read, rows, keys, 0, first);
    __syncthreads();
    put<kKeys>(moved, kReadStride, memory.slice);
    __syncthreads();
    const int key = part * (kKeys / kParts);
    add_product<ByRow>(memory.slice + row * kReadStride + key, kReadStride,
                       memory.state + (first + key) * kStateStride, kStateStride, kKeys / kParts, sum);
  }
  __syncthreads();
  store((part == 0 ? memory.rows : memory.slice) + row * kStateStride, kStateStride, sum);
}

// Adds up the rows.
__device__ inline void complete_rows(const StatePass& pass, int64_t b, const PassPlace& place,
                                     PassMemory& memory) {
  float* const own = pass.rows + b * pass.chunk * pass.columns + place.column;
  for (int row = place.step; row < kRows; row += kSteps) {
    const int at = row * kStateStride + place.x;
    const bool is_row = row < pass.chunk && place.there;
    float value = is_row ? own[row * pass.columns] : 0.0F;
    if (pass.read != nullptr) {
      value += pass.read_factor * (memory.rows[at] + memory.slice[at]);
      if (is_row) own[row * pass.columns] = value;
    }
    memory.rows[at] = is_row ? value : 0.0F;
  }
}

// state = end·state + added.
__device__ inline void advance(const StatePass& pass, int64_t b, const PassPlace& place, PassMemory& memory) {
  if (!place.there) return;
  const float* const end = pass.end + b * pass.ends;
  const int64_t behind = b * pass.keys * pass.columns + place.column;
  for (int key = place.step; key < pass.keys; key += kSteps) {
    float& state = memory.state[key * kStateStride + place.x];
    const float now = state;
    const int64_t at = behind + key * pass.columns;
    const float added = pass.added != nullptr ? pass.added[at] : 0.0F;
    if (pass.came != nullptr) pass.came[at] = now;
    state = now * end[pass.ends == 1 ? 0 : key] + added;
  }
}

// state += left_factor·leftᵀ·rows: a warp computes kTile keys of each kLeftKeys, over all rows.
__device__ inline void add_left(const StatePass& pass, int64_t b, PassMemory& memory) {
  const int rows = static_cast<int>(pass.chunk), keys = static_cast<int>(pass.keys);
  const float* const left = pass.left + b * rows * keys;
  const int own = static_cast<int>(threadIdx.x) / 32 * kTile;
  for (int first = 0; first < keys; first += kLeftKeys) {
    TileSum sum;
    clear(sum);
    const bool has_keys = first + own < keys;  // the same for all threads of the warp
    for (int row = 0; row < rows; row += kLeftRows) {
      const Floats<kMoved> moved = fetch<kLeftKeys>(left, rows, keys, row, first);
      __syncthreads();
      put<kLeftKeys>(moved, kLeftStride, memory.slice);
      __syncthreads();
      if (has_keys) {
        add_product<ByColumn>(memory.slice + own, kLeftStride, memory.rows + row * kStateStride, kStateStride,
                              kLeftRows, sum);
      }
    }
    if (has_keys) add_to(memory.state + (first + own) * kStateStride, kStateStride, pass.left_factor, sum);
  }
}

__device__ inline void pass_chunk(const StatePass& pass, int64_t b, const PassPlace& place,
                                  PassMemory& memory) {
  if (pass.read != nullptr) read_state(pass, b, memory);
  __syncthreads();  // until sums lie there, and all have used the rows and the state of the chunk before
  complete_rows(pass, b, place, memory);
  advance(pass, b, place, memory);
  if (pass.left != nullptr) add_left(pass, b, memory);
}

// Four blocks a multiprocessor: shared memory and 64 registers a thread.
__global__ void __launch_bounds__(kThreads, 4) pass_states(StatePass pass) {
  __shared__ PassMemory memory;
  const int parts = static_cast<int>((pass.columns + kColumns - 1) / kColumns);
  PassPlace place;
  place.task = static_cast<int>(blockIdx.x) / parts;
  place.x = static_cast<int>(threadIdx.x) % kColumns;
  place.step = static_cast<int>(threadIdx.x) / kColumns;
  place.column = static_cast<int>(blockIdx.x) % parts * kColumns + place.x;
  place.there = place.column < pass.columns;
  float* const states = pass.state + pass.keys * place.task * pass.columns + place.column;
  for (int k = place.step; k < kMostKeys; k += kSteps) {
    const bool is_key = k < pass.keys && place.there;
    memory.state[k * kStateStride + place.x] = is_key ? states[k * pass.columns] : 0.0F;
  }
  for (int i = 0; i < pass.levels; ++i) {
    const int64_t level = pass.back ? pass.levels - 1 - i : i;
    const int64_t begin = pass.level_begins[level], end = pass.level_begins[level + 1];
    if (place.task >= (end - begin) * pass.heads) continue;  // skipped by all threads of the block
    pass_chunk(pass, begin * pass.heads + place.task, place, memory);
  }
  __syncthreads();
  for (int k = place.step; k < pass.keys && place.there; k += kSteps)
    states[k * pass.columns] = memory.state[k * kStateStride + place.x];
}

__global__ void decayed_products(DecayedProducts all) {
  __shared__ float a[kRows][kKeys + 1];
  __shared__ float b[kRows][kKeys + 1];
  __shared__ float sum[kRows][kKeys + 1];
  constexpr int kTiles = kRows / kTile;
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
