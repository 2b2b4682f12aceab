// Causal attention over packed sequences as cuDNN's graphs: what attention_cudnn.h runs. Raw pointers and a
// stream; no libtorch. Internal to src/ops; built with CUDA where cuDNN's headers are (SLUICE_CUDNN).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

namespace sluice::ops::cudnn {

enum class Direction : uint8_t { kForward, kBackward };

// What a graph is made for. Elements are bfloat16; a head's dimensions are dense, heads lie side by side.
struct GraphShape {
  Direction direction = Direction::kForward;
  int64_t sequences = 0;
  int64_t longest = 0;  // no sequence is longer
  int64_t rows = 0;     // backward only: no row stands behind; the workspace's size depends on it
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dimensions = 0;
  int64_t q_stride = 0;   // elements between rows of q
  int64_t kv_stride = 0;  // of k and v; out, its gradient and the results of backward are dense
  float scale = 1;

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
  // Where each sequence begins and where the last one ends, in elements: of q; of k and v; of rows of all
  // query heads (out, dout, dq); of all key heads (dk, dv); of lse.
  const int64_t* q_offsets = nullptr;
  const int64_t* kv_offsets = nullptr;
  const int64_t* out_offsets = nullptr;
  const int64_t* dkv_offsets = nullptr;
  const int64_t* lse_offsets = nullptr;
  const int32_t* lengths = nullptr;  // of the sequences; none is 0
};

// A graph with cuDNN's plan for it, on the GPU that was current when it was made. Used by the thread that
// made it.
class Plan {
 public:
  // Takes about half a second. Null where cuDNN has none for the shape, with its words in `fault`.
  // REQUIRES: load_fault() is empty.
  static std::unique_ptr<Plan> make(const GraphShape& shape, std::string& fault);
  ~Plan();

  int64_t workspace_bytes() const;
  // `workspace` begins at a multiple of 16 bytes and holds zeros. What went wrong, or nothing.
  std::string run(const Operands& operands, void* workspace, cudaStream_t stream);

 private:
  struct Graph;
  explicit Plan(std::unique_ptr<Graph> graph);
  std::unique_ptr<Graph> graph_;
};

// Why cuDNN can't be loaded; empty once it is. Thread-safe, cheap after the first call.
const std::string& load_fault();
// Of the library that was loaded, as 91900 for 9.19.0.
int64_t library_version();

// Why cuDNN can't run the shape on a GPU that need not be here; empty when it can. `architecture`: 90 for
// H100; `device`: the GPU's properties, in the JSON that cuDNN writes them in. cuDNN wants a driver's library
// for that, if only the toolkit's stub. REQUIRES: load_fault() is empty.
std::string support_fault(const GraphShape& shape, int architecture, const std::string& device);

}  // namespace sluice::ops::cudnn
