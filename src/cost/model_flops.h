// The FLOPs that a model needs for a step, without what a layout computes besides, and their share of the
// devices' peak: model FLOPs utilization (MFU).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cost/quadratic.h"
#include "model/program.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// Counts as Chowdhery et al. do (PaLM, 2022, appendix B), for causal attention. Each product of a layer
// counts once forward, once for its input's gradient and once for the gradient of a trained matrix. Attention
// counts forward and twice that backward over the pairs that a token sees: half of the square, or what its
// window leaves of it. Recurrences count likewise. Recomputation, padding, norms, activations, and backwards
// of layers that no gradient reaches count nothing.
class ModelFlops {
 public:
  // `window`: the model's; 0: none.
  ModelFlops(const model::Program& program, int64_t window);

  double of_work(const Work& work) const;
  double of_sequences(std::span<const int64_t> lengths) const { return of_work(Work::of(lengths, window_)); }
  // FLOPs of a step's sequences; a prefix that branches share counts once.
  double of_plan(const strategy::StepPlan& plan) const;

 private:
  int64_t window_;
  double per_token_ = 0, per_square_ = 0, per_windowed_square_ = 0;
};

// As 0.45 for 45 % of `peak_flops_per_ns`, which is all devices' together; none without a peak or a time.
std::optional<double> utilisation(double flops, int64_t step_ns, std::optional<double> peak_flops_per_ns);

}  // namespace sluice::cost
