// Operations of the model program on one TP rank: the computing half of model/kind.h. A caller knows neither
// their parameters nor their saved state.
//
// All TP ranks of a group call the same functions in the same order. Activations are row shards
// (tensor_parallel.h). Gradients are those of the sum of token losses and are added to accumulators.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "layers/context.h"
#include "layers/head.h"
#include "layers/row_layout.h"
#include "model/purpose.h"

namespace sluice::layers {

// A saved tensor and the dimension along which its rows lie; undefined if it is missing.
struct SavedRows {
  at::Tensor& tensor;
  int64_t dimension = 0;
};

// State that a forward keeps for the backward, or a backward for its weight gradients. Its contents are
// private to the operation's kind.
class State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;

  virtual std::vector<SavedRows> rows() = 0;
  int64_t bytes();  // bytes of its tensors
  // Peak bytes, during a backward, of recomputed tensors that drop_recomputable() had dropped.
  virtual int64_t recomputed_bytes() const { return 0; }
};
using StatePtr = std::unique_ptr<State>;  // null: nothing

// Rows of a micro-batch for an MTP layer (mtp.h).
struct MtpRows {
  at::Tensor id_T;  // by row the next token's id, -1 at a sequence's end and for inert rows
  Targets targets;  // the tokens behind these
};

// A micro-batch on its way through a stage.
struct Flow {
  RowLayout layout;
  at::Tensor id_T;           // input of the embedding
  Targets targets;           // for the head's loss
  MtpRows mtp;               // for a head with an MTP layer, in training
  at::Tensor activation_SH;  // on its way forward
  at::Tensor gradient_SH;    // on its way backward
  // Left by the head: double on the device, the same on every TP rank. Training leaves HeadResult::sums,
  // evaluation head_losses.
  at::Tensor sums;
  at::Tensor loss_R;
  at::Tensor numbers_RK;  // from a head of numbers, in evaluation
  HeadRows head_rows;     // from a teacher, in evaluation; the matrix is the shard itself
};

using model::Purpose;

enum class Direction : uint8_t { kForward, kBackward };

class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  // Advances the flow's activation to the next operation's. The head computes its loss instead and, in
  // training, all gradients of the head.
  virtual StatePtr forward(Flow& flow, Purpose purpose) const = 0;
  // Leaves only what a backward cannot recompute without running attention or another exchange.
  virtual void drop_recomputable(State&) const {}

  // B: takes the flow's gradient to the previous operation's, adds vectors' gradients, and returns what W
  // needs. The gradient that B took must stay unchanged until W. The head has no B: its forward did the work.
  virtual StatePtr backward_input(Flow& flow, StatePtr saved) const = 0;
  // W: adds the matrices' gradients.
  virtual void backward_weight(StatePtr) const {}
  // B and W at once: the same sums with less memory.
  virtual void backward(Flow& flow, StatePtr saved) const = 0;

  // Runs this lane's experts for the other lanes of its expert group in a forward or backward for which this
  // lane has no rows itself.
  virtual void help(const DispatchedRows& /*rows*/, Direction /*direction*/) const {}
};

}  // namespace sluice::layers
