// A tensor of a model as it is stored, and what an operation takes a token: work, bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/interval.h"
#include "model/weight.h"

namespace sluice::model {

// Which part of an operation's parameters a rank computes with: what TP leaves it of each matrix, and of
// experts, where lanes divide them, its own.
struct Cut {
  int tp = 1;
  int t = 0;
  int expert_lanes = 1;
  int expert_lane = 0;
  bool keeps_dispatched = true;  // from forward to backward, of rows that travel to experts
  // The lane's own experts, ascending; none: its even part of them.
  std::span<const int> own_experts = {};
};

// Adapters of a stored matrix: to the rows of one of its tensors factor · left·right is added, where left has
// as many rows, cut as they are, and right the matrix's columns.
enum class Factor : uint8_t { kNone, kLeft, kRight };

// One tensor as stored: `rows` x `columns`, row-major; norms and biases are rows = width, columns = 1.
struct Parameter {
  std::string_view role;          // what it is to its kind: "qkv"; of an adapter the matrix's
  Factor factor = Factor::kNone;  // with the next one tells parameters of a role in an operation apart
  int adapted = 0;                // of an adapter: which of the matrix's tensors it belongs to
  // Its tensors in Hugging Face files: one, or one for each row group, within the block
  // ("mlp.up_proj.weight") or, of the model's ends, whole.
  std::vector<std::string> tensors;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<RowGroup> groups;  // in row order; rows add up
  bool replicated = false;       // every TP rank holds all of it (norms)
  int64_t experts = 0;           // of so many it has groups, as many of each; 0: of none
  bool transposed = false;       // stored [in, out], where Hugging Face files hold [out, in]
  // Of how many experts files hold one tensor, [experts, in, out], where rows of gate and up take turns; 0:
  // the rest of this says what they hold.
  int64_t stacked = 0;
  bool depthwise = false;  // a convolution's, which files hold as [rows, 1, columns]
  bool by_head = false;    // a vector, which files hold as [1, 1, rows, 1]
  Start start = Start::kNormal;
  bool adapts = true;   // may have adapters
  bool trained = true;  // frozen ones have no gradient, and neither push nor optimiser knows them
  Learns learns = Learns::kByGradient;
  BaseFormat format = {};
  bool outputs_last = false;  // stored [in, out]
  std::string name;           // of the whole model: "layers.3.qkv"
  int64_t offset = 0;         // first element in the bucket's flat array
  int64_t place = 0;          // first element in that of all the operation's parameters, whatever is frozen

  int64_t size() const { return rows * columns; }
  // Elements of the bucket's flat array: words where it is coded, each group's blocks end to end.
  int64_t stored_size() const {
    if (!format.coded()) return size();
    int64_t blocks = 0;
    for (const RowGroup& group : groups)
      blocks += (group.rows * columns + base::kWeightBlock - 1) / base::kWeightBlock;
    return blocks * format.block_words();
  }
  base::Interval stored() const { return {offset, offset + stored_size()}; }
  // Whether others' files have it, as neither adapters nor what a run remembers.
  bool is_published() const { return factor == Factor::kNone && learns != Learns::kAsLoads; }
  // Weight decay applies to matrices, not to one-dimensional parameters.
  bool one_dimensional() const { return columns == 1 && factor == Factor::kNone; }
  // Whether rows are multiplied with it in fewer bits where a layer's products are narrow (layers/product.h):
  // the matrices that may have adapters.
  bool takes_low_precision() const { return adapts && factor == Factor::kNone && !one_dimensional(); }
  // Travels as it is, with its gradients or counts, whatever codec others have: few numbers, and counts
  // steer.
  bool keeps_its_bits() const { return one_dimensional() || learns != Learns::kByGradient || format.coded(); }
};

// "q_proj" of "self_attn.q_proj.weight".
inline std::string_view module_of(std::string_view tensor) {
  if (const size_t dot = tensor.rfind('.'); dot != tensor.npos) tensor = tensor.substr(0, dot);
  return tensor.substr(tensor.rfind('.') + 1);
}

// What a token's forward takes on all TP ranks together. A backward's input gradient has as many products and
// twice the elementwise traffic, its weight gradient the products of trained matrices.
struct TokenWork {
  int64_t products = 0;    // multiply-adds of matrices
  int64_t trained = 0;     // of these, with matrices that are trained; of a part unknown, and its block's
  int64_t recomputed = 0;  // of these, what a backward that recomputes does again
  int64_t routed = 0;      // of these, with the experts that it visits
  int64_t attention = 0;   // multiply-adds with each of the tokens it attends to, scores and values each
  int64_t window = 0;      // of tokens that it attends to at most, itself included; 0: all before it
  int64_t scanned = 0;     // multiply-adds of a recurrence, at attention's rate
  int64_t elements = 0;    // read or written between the products
  int collectives = 0;     // all-gathers and reduce-scatters of its row under TP
};

// Activation bytes a token of one operation on the fullest of the ranks that cut it alike, as this program
// computes them where products accumulate into wider gradients in place, as on GPUs (layers/memory_test.cpp
// holds it against the allocator).
struct TokenBytes {
  int64_t saved = 0;            // kept from forward to backward
  int64_t recompute_input = 0;  // of these, what a backward that recomputes the rest needs
  int64_t deferred = 0;         // what a deferred weight gradient holds beyond the saved ones
  int64_t recomputed = 0;       // what a backward has made again at any time
  // At work beyond those: a forward, a backward at once, a backward whose keys and values go round a ring
  // with the gradients of them.
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t ring_backward = 0;

  // Of whichever takes most without a ring.
  int64_t transient() const { return forward > backward ? forward : backward; }
};

// What stays while text is generated, on the fullest of the ranks that cut an operation alike: of each token
// that has gone through it, and of a text besides.
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
