// Attention over packed sequences, and over blocks of queries and keys, as cuDNN graphs, for
// attention_cudnn.h. Raw pointers and a stream; no libtorch. Internal to src/ops; built with CUDA if cuDNN's
// headers are there (SLUICE_CUDNN).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ops/planned_sizes.h"

namespace sluice::ops::cudnn {

using Direction = PlannedFor;

// The queries and keys that see each other, in a sequence of as many of both.
struct Mask {
  bool causal = true;
  int64_t window = 0;  // tokens that a token sees to one side, itself included; 0: all

  auto operator<=>(const Mask&) const = default;
};

// The key of a graph. Elements are bfloat16; a head's dimensions are dense, heads lie side by side.
struct GraphShape {
  Direction direction = Direction::kForward;
  int64_t sequences = 0;
  int64_t longest = 0;       // maximum number of a sequence's queries
  int64_t longest_keys = 0;  // and of its keys
  int64_t rows = 0;          // backward only: queries in total; the workspace's size depends on it
  int64_t key_rows = 0;      // backward only: keys in total
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dimensions = 0;
  // Columns of v, out and their gradients, at most `dimensions`. Heads are `dimensions` elements apart there,
  // too; results' other columns stay as they are.
  int64_t value_dimensions = 0;
  // Keys and values lie in a cache of so many pages of so many rows each, and sequences have lists of pages;
  // 0: they lie one behind the other. Forward only.
  int64_t pages = 0;
  int64_t page_rows = 0;
  int64_t q_stride = 0;   // elements between rows of q
  int64_t kv_stride = 0;  // the same for k and v; out, its gradient and backward's results are dense
  float scale = 1;
  Mask mask;
  bool deterministic = false;  // backward only: sums in one order

  auto operator<=>(const GraphShape&) const = default;
};

// Rows of all sequences, in GPU memory, at multiples of 16 bytes.
struct Operands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;   // [rows, heads, dimensions]; backward reads it
  float* lse = nullptr;  // [rows, heads], log Σ exp(scale·scores); backward reads it
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  // The begins of the sequences and the last one's end, in elements of: q; k and v; rows of all query heads
  // (out, dout); lse; backward's results dq; dk and dv.
  const int64_t* q_offsets = nullptr;
  const int64_t* kv_offsets = nullptr;  // unless keys lie in pages
  const int32_t* page_table = nullptr;  // [sequences, pages of the longest keys], if they do
  const int64_t* out_offsets = nullptr;
  const int64_t* lse_offsets = nullptr;
  const int64_t* dq_offsets = nullptr;
  const int64_t* dkv_offsets = nullptr;
  // The sequences' numbers of queries and keys; none is 0.
  const int32_t* lengths = nullptr;
  const int32_t* key_lengths = nullptr;
};

// A graph with cuDNN's plan for it, on the GPU that was current when it was made or loaded. Any thread may
// run it on that GPU; several take turns.
class Plan {
 public:
  // Compiles for half a second to four. Null if cuDNN has no plan for the shape; `fault` is then its message.
  // REQUIRES: load_fault() is empty.
  static std::unique_ptr<Plan> make(const GraphShape& shape, std::string& fault);
  // A plan from to_bytes(), compiled already; null if cuDNN does not take it here. Of another version of the
  // library or another kind of GPU it must not come. REQUIRES: load_fault() is empty.
  static std::unique_ptr<Plan> load(std::string_view bytes);
  ~Plan();

  // Empty if cuDNN does not give it.
  std::string to_bytes() const;
  int64_t workspace_bytes() const;
  // `workspace` begins at a multiple of 16 bytes and may hold anything. Returns an error message, or "".
  std::string run(const Operands& operands, void* workspace, cudaStream_t stream);

 private:
  struct Graph;
  explicit Plan(std::unique_ptr<Graph> graph);
  std::unique_ptr<Graph> graph_;
};

// The reason why cuDNN can't be loaded; empty once it is. Thread-safe, cheap after the first call.
const std::string& load_fault();
// Version of the loaded library: 91900 for 9.19.0.
int64_t library_version();

// Ends what cuDNN keeps for the calling thread, which made plans and will make and run no more.
void end_thread();

// All of a shape, on one line.
std::string to_text(const GraphShape& shape);

// The reason why cuDNN can't run the shape on a GPU, which need not be present; empty if it can.
// `architecture`: 90 for H100; `device`: the GPU's properties, in cuDNN's JSON format. cuDNN needs a driver
// library for the check; the toolkit's stub suffices. REQUIRES: load_fault() is empty.
std::string support_fault(const GraphShape& shape, int architecture, const std::string& device);

}  // namespace sluice::ops::cudnn
