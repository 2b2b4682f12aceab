// GPU kernels for the operations between matrix products and attention, each in as few passes over memory as
// its data allows. Raw pointers and a stream; no libtorch. Internal to src/ops; the operations' own headers
// define the results.
//
// The sources (*_kernels.cu) are built by nvcc, and a second time for the host, where the tests run them
// thread by thread (test_cuda_on_host.h). Sums are taken in float, in an order that depends on the shape
// alone.
#pragma once

#include <cstdint>
#include <initializer_list>

#ifdef SLUICE_CUDA_ON_HOST
#include "ops/cuda/test_cuda_on_host.h"
#else
#include <cuda_runtime_api.h>
namespace sluice::ops::kernels {
using Stream = cudaStream_t;
using Status = cudaError_t;
}  // namespace sluice::ops::kernels
#endif

namespace sluice::ops::kernels {

enum class Element : uint8_t { kBFloat16, kFloat32 };

// All functions return the launch's status; an empty launch is success. Matrices are dense and row-major
// unless a stride is given. Any width works; widths that are multiples of 16 bytes are several times faster.

// gate_up [rows, 2·width] -> a [rows, width].
Status launch_swiglu(Element element, const void* gate_up, void* a, int64_t rows, int64_t width,
                     Stream stream);
// Overwrites gate_up with its gradient and writes the forward's result to a.
Status launch_swiglu_backward(Element element, const void* da, void* gate_up, void* a, int64_t rows,
                              int64_t width, Stream stream);

// Codes of 8-bit floats and their factors (ops/float8.h), by row of x, or by column, whose codes become rows.
// REQUIRES: `codes` begins at a multiple of 16; code_stride is the coded length rounded up to one.
struct Float8Coding {
  const void* x = nullptr;  // row r: x[r·row_stride]
  int64_t rows = 0;
  int64_t width = 0;
  int64_t row_stride = 0;
  uint8_t* codes = nullptr;  // [rows, code_stride], or [width, code_stride] by column
  int64_t code_stride = 0;
  float* factors = nullptr;  // [rows] or [width]
};
Status launch_float8_rows(Element element, const Float8Coding& coding, Stream stream);
Status launch_float8_columns(Element element, const Float8Coding& coding, Stream stream);

// A block's threads keep a row in at most this many accesses: of 16 bytes if addresses and rows are multiples
// of 16 bytes, else of one element.
inline constexpr int64_t kMostRowAccesses = 2048;
inline bool row_fits(Element element, int64_t width, std::initializer_list<const void*> addresses) {
  const int64_t element_bytes = element == Element::kBFloat16 ? 2 : 4;
  uint64_t all = static_cast<uint64_t>(width * element_bytes);
  for (const void* address : addresses) all |= reinterpret_cast<uint64_t>(address);
  return width <= kMostRowAccesses * (all % 16 == 0 ? 16 / element_bytes : 1);
}

struct NormForward {
  const void* x = nullptr;       // [rows, width]
  const void* weight = nullptr;  // [width]
  void* y = nullptr;
  float* inverse_rms = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t width = 0;
  float eps = 0;
  float offset = 0;  // added to the weight
};
inline bool fits(Element element, const NormForward& norm) {
  return row_fits(element, norm.width, {norm.x, norm.weight, norm.y});
}
// REQUIRES: fits(), here and below.
Status launch_rms_norm(Element element, const NormForward& norm, Stream stream);

// Rows whose weight gradients are summed by one block.
inline constexpr int64_t kNormBlockRows = 16;

struct NormBackward {
  const void* dy = nullptr;  // [rows, width], like all tensors below but weight and weight_sums
  const void* x = nullptr;
  const void* weight = nullptr;  // [width]
  const float* inverse_rms = nullptr;
  const void* residual = nullptr;  // added to dx; or null
  void* dx = nullptr;
  void* y = nullptr;
  float* weight_sums = nullptr;  // [ceil(rows / kNormBlockRows), width]: sums of dy·x·inverse_rms
  int64_t rows = 0;
  int64_t width = 0;
  float offset = 0;
};
inline bool fits(Element element, const NormBackward& norm) {
  return row_fits(element, norm.width, {norm.dy, norm.x, norm.weight, norm.residual, norm.dx, norm.y});
}
Status launch_rms_norm_backward(Element element, const NormBackward& norm, Stream stream);

struct Rotary {
  void* x = nullptr;  // row r, head h, dimension d: x[r·row_stride + h·2·pairs + d]
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t pairs = 0;
  int64_t row_stride = 0;
  const float* cosines = nullptr;  // [positions, pairs]
  const float* sines = nullptr;
  const int64_t* positions = nullptr;  // [rows]
  float sign = 1;                      // the angles' sign: 1 forward, -1 backward
};
Status launch_rotary(Element element, const Rotary& rotary, Stream stream);

// logits [rows, columns] -> statistics [rows, 3]: maximum, Σ exp(logit - maximum), the target's logit,
// -infinity when targets[r] - begin is no column.
Status launch_row_statistics(Element element, const void* logits, const int64_t* targets, int64_t begin,
                             float* statistics, int64_t rows, int64_t columns, Stream stream);
// gradient = exp(logit - whole maximum) / whole sum - [column is the target]. `gradient` may be `logits` if
// their elements agree. REQUIRES: not bfloat16 logits with a float gradient.
struct CrossEntropyGradient {
  Element logits_element = Element::kFloat32;
  Element gradient_element = Element::kFloat32;
  const void* logits = nullptr;      // [rows, columns]
  const float* whole = nullptr;      // [rows, 3]
  const int64_t* targets = nullptr;  // [rows]
  int64_t begin = 0;
  void* gradient = nullptr;  // [rows, columns]
  int64_t rows = 0;
  int64_t columns = 0;
};
Status launch_cross_entropy_gradient(const CrossEntropyGradient& gradient, Stream stream);

struct EmbeddingLookup {
  const void* table = nullptr;   // [rows, width]
  const int64_t* ids = nullptr;  // [tokens]
  int64_t begin = 0;             // the id of the table's first row
  void* x = nullptr;             // [tokens, width]; zeros if an id has no row
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t width = 0;
};
Status launch_embedding_lookup(Element element, const EmbeddingLookup& lookup, Stream stream);

// dtable[id - begin] += the rows of dx of all tokens with that id, one after the other.
struct EmbeddingGradient {
  const void* dx = nullptr;             // [tokens, width]
  const int64_t* sorted_ids = nullptr;  // [tokens]: ascending, equal ones in the order of tokens
  const int64_t* token_of = nullptr;    // [tokens]: the token with the id at this place
  int64_t begin = 0;
  float* dtable = nullptr;  // [rows, width]
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t width = 0;
};
Status launch_embedding_gradient(Element element, const EmbeddingGradient& gradient, Stream stream);

// Merges the results over two sets of keys. REQUIRES: dimensions <= 256; no lse is infinite, but `lse` may be
// -infinity if `out` is 0.
struct AttentionMerge {
  float* out = nullptr;  // [rows, heads, dimensions]
  float* lse = nullptr;  // row r, head h: lse[h·lse_stride + r]
  int64_t lse_stride = 0;
  const void* more_out = nullptr;  // as out
  const float* more_lse = nullptr;
  int64_t more_lse_stride = 0;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dimensions = 0;
};
// `element` is the type of more_out.
Status launch_attention_merge(Element element, const AttentionMerge& merge, Stream stream);

inline constexpr int64_t kMostChunkRows = 64;
inline constexpr int64_t kMostKeys = 256;

// ops/state_pass.h, all in float. REQUIRES: at most kMostChunkRows rows of a chunk and kMostKeys keys.
struct StatePass {
  float* state = nullptr;       // [tasks, keys, columns]
  float* rows = nullptr;        // [chunks · heads, chunk, columns]
  const float* read = nullptr;  // [chunks · heads, chunk, keys]; or null
  float read_factor = 1;
  const float* end = nullptr;  // [chunks · heads, ends]
  int64_t ends = 1;
  const float* added = nullptr;  // [chunks · heads, keys, columns]; or null
  const float* left = nullptr;   // as read
  float left_factor = 1;
  float* came = nullptr;                  // as added, and may be the same memory
  const int64_t* level_begins = nullptr;  // [levels + 1]: first chunk of each level
  int64_t levels = 0;
  int64_t tasks = 0;  // pieces · heads
  int64_t heads = 0;
  int64_t chunk = 0;  // rows per chunk
  int64_t keys = 0;
  int64_t columns = 0;
  bool back = false;
};
Status launch_pass_states(const StatePass& pass, Stream stream);

// Rows in chunks and back (ops/chunk_rows.h). Row r's head h begins at r·row_stride + h·head_stride; chunks
// are dense, [places ÷ chunk, heads, chunk, width].
struct ChunkRows {
  const int64_t* index = nullptr;  // into chunks: each place's row; back: each row's place; too large: none
  int64_t rows = 0;
  int64_t places = 0;
  int64_t chunk = 0;   // places of each chunk
  int64_t heads = 0;   // of chunks
  int64_t shared = 1;  // neighbouring heads that have one head of rows
  int64_t width = 0;
  int64_t row_stride = 0;  // into chunks only; back, rows are dense
  int64_t head_stride = 0;
};
Status launch_rows_in_chunks(Element element, const ChunkRows& all, const void* rows, float* chunks,
                             Stream stream);
Status launch_rows_of_chunks(const ChunkRows& all, const float* chunks, float* rows, Stream stream);

// products[i, j] = Σ_k a[i, k]·b[j, k]·exp(sum[i, k] − sum[j, k]) if j <= i, else 0. Backward adds the
// products' gradient to da and db. REQUIRES: at most kMostChunkRows rows.
struct DecayedProducts {
  const float* a = nullptr;  // [batch, rows, keys], as b and sum
  const float* b = nullptr;
  const float* sum = nullptr;
  float* products = nullptr;  // [batch, rows, rows]
  float* da = nullptr;        // backward: as a
  float* db = nullptr;
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t keys = 0;
};
Status launch_decayed_products(const DecayedProducts& products, Stream stream);
Status launch_decayed_products_backward(const DecayedProducts& products, Stream stream);

}  // namespace sluice::ops::kernels
