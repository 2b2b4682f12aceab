// Which layers compute their products in fewer bits, chosen by what rounding adds to them on the run
// (parallel.narrow_products). Until that is measured layers count as alike.
#pragma once

#include <cstdint>

#include "runtime/engine.h"
#include "train/run_context.h"

namespace sluice::train {

// The same on every rank.
class NarrowChoosing {
 public:
  // `run` is open; it outlives this. The next step measures.
  explicit NarrowChoosing(RunContext& run);

  // Collective behind the step that measured: plans of later steps have as few narrow layers as devices need.
  void look(int64_t step, const runtime::StepResult& result);

 private:
  bool narrows() const;

  RunContext& run_;
  bool measures_ = false;  // the step under way does
};

}  // namespace sluice::train
