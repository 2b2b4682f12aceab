// A part of a block at work on one TP rank: the computing half of model::Part. A block joins parts (block.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "layers/operation.h"
#include "layers/product.h"

namespace sluice::layers {

class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  // Adds to the rows that pass what the part makes of x_SH: the same rows, or of a part beside the first one
  // the layer's (model::Part::beside). What the backward needs of it goes to `saved`, unless that is null.
  virtual at::Tensor forward(const RowLayout& layout, const at::Tensor& x_SH, const at::Tensor& passing_SH,
                             StatePtr* saved) const = 0;

  // The rows that the part took, as its state has them. A part beside the first one keeps none: they are lent
  // before anything else is asked of its state.
  virtual const at::Tensor& input(const State& saved) const = 0;
  virtual void lend_input(State& saved, const at::Tensor& x_SH) const = 0;

  // Leaves of what a forward saved only what restore() cannot make again from the part's input; with
  // `Input::kKept` that input too.
  enum class Input : uint8_t { kKept, kMadeAgain };
  virtual void drop_recomputable(State& saved, Input input) const = 0;
  // The forward's result from what drop_recomputable() left, its input kept.
  virtual at::Tensor result(const RowLayout& layout, State& saved, const at::Tensor& passing_SH) const = 0;
  // Makes what is missing again, bit for bit. `x_SH`: the input where it was not kept, else undefined.
  virtual void restore(const RowLayout& layout, State& saved, const at::Tensor& x_SH) const = 0;

  // Of the sum that the part added to, and what the gradient of its input is added to: the same, or what
  // parts beside it gave.
  struct Gradients {
    at::Tensor dy_SH, dpassing_SH;
  };
  // B: returns dx and leaves in `deferred` what W needs. dy_SH is kept there.
  virtual at::Tensor backward_input(const RowLayout& layout, StatePtr saved, const Gradients& from,
                                    StatePtr& deferred) const = 0;
  // What W can gather again, where it does not follow at once.
  virtual void drop_gathered(State& deferred) const = 0;
  // W: adds the matrices' gradients.
  virtual void backward_weight(StatePtr deferred) const = 0;

  // See Operation.
  virtual void help(const DispatchedRows& /*rows*/, Direction /*direction*/) const {}
};

// Those of an adapter's rows that there are.
inline void add_rows(std::vector<AdapterRows>& narrow, std::vector<SavedRows>& rows) {
  for (AdapterRows& each : narrow) {
    rows.push_back({each.a_TK});
    rows.push_back({each.b_TK});
  }
}

}  // namespace sluice::layers
