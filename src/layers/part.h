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

  // Takes the rows that pass to those behind the part; what the backward needs of it goes to `saved`, unless
  // that is null.
  virtual at::Tensor forward(const MicroBatchLayout& layout, const at::Tensor& x_SH,
                             StatePtr* saved) const = 0;

  // Leaves of what a forward saved only what restore() cannot make again from the part's input; with
  // `Input::kKept` that input too.
  enum class Input : uint8_t { kKept, kMadeAgain };
  virtual void drop_recomputable(State& saved, Input input) const = 0;
  // The forward's result from what drop_recomputable() left, its input kept.
  virtual at::Tensor result(const MicroBatchLayout& layout, State& saved) const = 0;
  // Makes what is missing again, bit for bit. `x_SH`: the input where it was not kept, else undefined.
  virtual void restore(const MicroBatchLayout& layout, State& saved, const at::Tensor& x_SH) const = 0;

  // B: returns dx and leaves in `deferred` what W needs. dy_SH is kept there.
  virtual at::Tensor backward_input(const MicroBatchLayout& layout, StatePtr saved, const at::Tensor& dy_SH,
                                    StatePtr& deferred) const = 0;
  // What W can gather again, where it does not follow at once.
  virtual void drop_gathered(State& deferred) const = 0;
  // W: adds the matrices' gradients.
  virtual void backward_weight(StatePtr deferred) const = 0;

  // See Operation.
  virtual void help(const TravellingRows& /*rows*/, Direction /*direction*/) const {}
};

// Those of an adapter's rows that there are.
inline void add_rows(std::vector<NarrowRows>& narrow, std::vector<SavedRows>& rows) {
  for (NarrowRows& each : narrow) {
    rows.push_back({each.a_TK});
    rows.push_back({each.b_TK});
  }
}

}  // namespace sluice::layers
