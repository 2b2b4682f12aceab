// A tensor of a model as it is stored, and the work and bytes that an operation takes for a token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "model/weight.h"

namespace sluice::model {

// The part of an operation's parameters that a rank computes with: its TP cut of each matrix and, if lanes
// divide experts, its own experts.
struct Cut {
  int tp = 1;
  int t = 0;
  int expert_lanes = 1;
  int expert_lane = 0;
  bool keeps_dispatched = true;  // keeps rows dispatched to experts from forward to backward
  // The lane's own experts, ascending; none: an even part of all experts.
  std::span<const int> own_experts = {};
};

// Adapters of a stored matrix add factor · left·right to the rows of one of its tensors. Left has as many
// rows as the tensor and is cut alike; right has the matrix's columns. DoRA's magnitudes are a vector of the
// tensor's outputs.
enum class Factor : uint8_t { kNone, kLeft, kRight, kMagnitude };

// One tensor as stored: `rows` x `columns`, row-major; norms and biases are rows = width, columns = 1.
struct Parameter {
  std::string_view role;          // name in its kind: "qkv"; an adapter has its matrix's
  Factor factor = Factor::kNone;  // with the next one tells parameters of one role apart
  int adapted = 0;                // adapters: index of the matrix's tensor
  // Its tensors in Hugging Face files: one for all, or one for each row group. Names are relative to the
  // block ("mlp.up_proj.weight"); those of the model's ends are whole.
  std::vector<std::string> tensors;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<RowGroup> groups;  // in row order; their rows add up to `rows`
  bool replicated = false;       // every TP rank holds all of it (norms)
  int64_t experts = 0;           // number of experts with equally many groups; 0: none
  bool transposed = false;       // stored [in, out], where Hugging Face files hold [out, in]
  // The number of experts for which files hold one tensor, [experts, in, out], with rows of gate and up
  // interleaved. 0: files hold the tensors that the other members describe.
  int64_t stacked = 0;
  bool depthwise = false;  // a convolution's; files hold it as [rows, 1, columns]
  bool by_head = false;    // a vector, which files hold as [1, 1, rows, 1]
  Start start = Start::kNormal;
  bool adapts = true;   // may have adapters
  bool trained = true;  // false: frozen, without gradient, push and optimizer state
  Learns learns = Learns::kByGradient;
  BaseFormat format = {};
  bool outputs_last = false;  // stored [in, out]
  bool of_mtp = false;        // of the head's MTP layer
  std::string name;           // in the whole model: "layers.3.qkv"
  int64_t offset = 0;         // first element in the bucket's flat array
  int64_t place = 0;          // first element among all of the operation's parameters, frozen or not

  int64_t size() const { return rows * columns; }
  // Elements in the bucket's flat array: words if coded, each group's blocks end to end.
  int64_t stored_size() const {
    if (!format.coded()) return size();
    int64_t blocks = 0;
    for (const RowGroup& group : groups)
      blocks += (group.rows * columns + base::kWeightBlock - 1) / base::kWeightBlock;
    return blocks * format.block_words();
  }
  base::Interval stored() const { return {offset, offset + stored_size()}; }
  // Whether published files have it: not for adapters and remembered loads.
  bool is_published() const { return factor == Factor::kNone && learns != Learns::kAsLoads; }
  // Weight decay applies to matrices, not to one-dimensional parameters.
  bool one_dimensional() const {
    return (columns == 1 && factor == Factor::kNone) || factor == Factor::kMagnitude;
  }
  // Whether low-precision GEMMs apply to it (layers/product.h): true for the matrices that may have
  // adapters.
  bool takes_low_precision() const { return adapts && factor == Factor::kNone && !one_dimensional(); }
  // Whether no codec may change it or its gradients: few numbers, and counts, which steer
  // corrections.
  bool keeps_its_bits() const { return one_dimensional() || learns != Learns::kByGradient || format.coded(); }
};

// "q_proj" of "self_attn.q_proj.weight".
inline std::string_view module_of(std::string_view tensor) {
  if (const size_t dot = tensor.rfind('.'); dot != tensor.npos) tensor = tensor.substr(0, dot);
  return tensor.substr(tensor.rfind('.') + 1);
}

// Work of a token's forward on all TP ranks together. In backward the input gradient takes as many products
// and twice the elementwise traffic; the weight gradient takes the products of trained matrices.
struct TokenWork {
  int64_t products = 0;    // multiply-adds of matrices
  int64_t trained = 0;     // part of products with trained matrices, estimated by size if some are frozen
  int64_t recomputed = 0;  // part of products that recomputation repeats
  int64_t routed = 0;      // part of products with the experts that a token visits
  int64_t attention = 0;   // multiply-adds for each token attended to, scores and values together
  int64_t window = 0;      // most tokens that a token attends to, itself included; 0: all before it
  int64_t scanned = 0;     // multiply-adds of a recurrence, at attention's rate
  int64_t elements = 0;    // read or written between the products
  int collectives = 0;     // all-gathers and reduce-scatters of a token's row under TP
};

// Activation bytes of a token in one operation, on the fullest of the ranks that cut it alike. They hold for
// products that accumulate into wider gradients in place, as on GPUs (layers/memory_test.cpp compares them
// with the allocator).
struct TokenBytes {
  int64_t saved = 0;            // kept from forward to backward
  int64_t recompute_input = 0;  // part of saved that recomputation starts from
  int64_t deferred = 0;         // held for a deferred weight gradient beyond saved bytes
  int64_t recomputed = 0;       // most that a backward has recomputed at any time
  // Working memory beyond those: of a forward, of a fused backward, and of a backward whose keys, values and
  // their gradients go round a ring.
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t ring_backward = 0;

  // The larger one without a ring.
  int64_t transient() const { return forward > backward ? forward : backward; }
};

// Cache bytes while text is generated, on the fullest of the ranks that cut an operation alike: for each
// token computed, and for each sequence besides.
struct CacheBytes {
  int64_t token = 0;
  int64_t sequence = 0;
  CacheBytes& operator+=(const CacheBytes& other) {
    token += other.token;
    sequence += other.sequence;
    return *this;
  }
};

}  // namespace sluice::model
