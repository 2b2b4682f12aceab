// Operations of the model program at work on one TP rank: the computing half of model/kind.h. Whoever runs
// them knows neither their parameters nor what they keep.
//
// All TP ranks of a group call the same functions in the same order. Activations are row shards
// (tensor_parallel.h). Gradients are of the sum of token losses; accumulators are added to.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "layers/context.h"
#include "layers/head.h"
#include "layers/row_layout.h"
#include "model/purpose.h"

namespace sluice::layers {

// One tensor of what is kept and the dimension along which its rows lie; undefined where it is missing.
struct SavedRows {
  at::Tensor& tensor;
  int64_t dimension = 0;
};

// What a forward keeps for the backward, or a backward for its weight gradients. Only its kind understands
// it.
class State {
 public:
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;

  virtual std::vector<SavedRows> rows() = 0;
  int64_t bytes();  // that its tensors hold
  // Most that a backward has made again at any time of what drop_recomputable() left out of the state.
  virtual int64_t recomputed_bytes() const { return 0; }
};
using StatePtr = std::unique_ptr<State>;  // null: nothing

// A micro-batch on its way through a stage.
struct Flow {
  RowLayout layout;
  at::Tensor id_T;           // what the embedding reads
  Targets targets;           // what the head compares with
  at::Tensor activation_SH;  // on its way forward
  at::Tensor gradient_SH;    // on its way backward
  // Left by the head, double on the device, the same on every TP rank: in training HeadResult::sums, in
  // evaluation head_losses.
  at::Tensor sums;
  at::Tensor loss_R;
  at::Tensor numbers_RK;  // of a head of numbers, in evaluation
  HeadRows head_rows;     // of a teacher, in evaluation; the matrix is the shard itself
};

using model::Purpose;

enum class Direction : uint8_t { kForward, kBackward };

class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  // Takes the flow's activation to the next operation's. The head makes the loss of it, and for training all
  // its gradients too.
  virtual StatePtr forward(Flow& flow, Purpose purpose) const = 0;
  // Leaves only what a backward cannot make again without running attention or another exchange.
  virtual void drop_recomputable(State&) const {}

  // B: takes the flow's gradient to that of the operation before, adds gradients of vectors, and returns what
  // W needs. Nobody may overwrite the gradient it took before W. The head has none: its forward did it.
  virtual StatePtr backward_input(Flow& flow, StatePtr saved) const = 0;
  // W: adds the matrices' gradients.
  virtual void backward_weight(StatePtr) const {}
  // B and W at once: the same sums with less memory.
  virtual void backward(Flow& flow, StatePtr saved) const = 0;

  // What a lane without rows of its own does while others of its expert group go that way: their rows may
  // visit its experts.
  virtual void help(const DispatchedRows& /*rows*/, Direction /*direction*/) const {}
};

}  // namespace sluice::layers
