// How many FLOPs a step's model needs, whatever a layout computes beside them, and the share that this is of
// what the devices could do: model FLOPs utilisation (MFU).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cost/quadratic.h"
#include "model/program.h"
#include "strategy/step_plan.h"

namespace sluice::cost {

// As Chowdhery et al. count them (PaLM, 2022, appendix B), for causal attention: each product of a layer once
// forward, once for its input's gradient and once for the gradient of a trained matrix; attention forward and
// twice that backward over the pairs that a token sees, half of the square or what its window leaves of it;
// recurrences likewise. What is computed again or padded, norms and activations count nothing, nor do
// backwards of layers that no gradient reaches.
class ModelFlops {
 public:
  // `window`: the model's; 0: none.
  ModelFlops(const model::Program& program, int64_t window);

  double of_work(const Work& work) const;
  double of_sequences(std::span<const int64_t> lengths) const { return of_work(Work::of(lengths, window_)); }
  // Of a step's sequences, a prefix that branches share once.
  double of_plan(const strategy::StepPlan& plan) const;

 private:
  int64_t window_;
  double per_token_ = 0, per_square_ = 0, per_windowed_square_ = 0;
};

// 0.45 for 45 % of `peak_flops_per_ns`, which all devices have together; none without a peak or a time.
std::optional<double> utilisation(double flops, int64_t step_ns, std::optional<double> peak_flops_per_ns);

}  // namespace sluice::cost
