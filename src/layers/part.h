// A part of a block on one TP rank: the computing half of model::Part. A block joins parts (block.h).
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

  // Adds the part's result for x_SH to passing_SH. A part that stands beside the first one has the first
  // one's x_SH (model::Part::beside). Keeps in `saved` what the backward needs, unless `saved` is null.
  virtual at::Tensor forward(const RowLayout& layout, const at::Tensor& x_SH, const at::Tensor& passing_SH,
                             StatePtr* saved) const = 0;

  // The part's input, from its state. A part beside the first one keeps no input: lend_input() gives it
  // before any other use of its state.
  virtual const at::Tensor& input(const State& saved) const = 0;
  virtual void lend_input(State& saved, const at::Tensor& x_SH) const = 0;

  // Drops all saved tensors that restore() can recompute from the part's input. `Input::kKept`: the input
  // stays, else it is dropped as well.
  enum class Input : uint8_t { kKept, kMadeAgain };
  virtual void drop_recomputable(State& saved, Input input) const = 0;
  // The forward's result after drop_recomputable(), if the input was kept.
  virtual at::Tensor result(const RowLayout& layout, State& saved, const at::Tensor& passing_SH) const = 0;
  // Recomputes what is missing, bit for bit. `x_SH`: the input if it was not kept, else undefined.
  virtual void restore(const RowLayout& layout, State& saved, const at::Tensor& x_SH) const = 0;

  // dy_SH: gradient of the sum to which the part added. dpassing_SH: the part's input gradient is added to
  // it; the same tensor, or the result of parts beside this one.
  struct Gradients {
    at::Tensor dy_SH, dpassing_SH;
  };
  // B: returns dx and leaves in `deferred` what W needs, dy_SH included.
  virtual at::Tensor backward_input(const RowLayout& layout, StatePtr saved, const Gradients& from,
                                    StatePtr& deferred) const = 0;
  // Drops what W can all-gather again, if W does not follow at once.
  virtual void drop_gathered(State& deferred) const = 0;
  // W: adds the matrices' gradients.
  virtual void backward_weight(StatePtr deferred) const = 0;

  // See Operation::help().
  virtual void help(const DispatchedRows& /*rows*/, Direction /*direction*/) const {}
};

// Appends an adapter's rows, including undefined tensors, which SavedRows allows.
inline void add_rows(std::vector<AdapterRows>& narrow, std::vector<SavedRows>& rows) {
  for (AdapterRows& each : narrow) {
    rows.push_back({each.a_TK});
    rows.push_back({each.b_TK});
  }
}

}  // namespace sluice::layers
