// The optimisation phase: gradient clipping by the exact global norm and AdamW on owner slices, with
// PyTorch's formulas (torch.optim.AdamW, torch.nn.utils.clip_grad_norm_), on moments as wide as masters or in
// 8 bits (runtime/moment.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/parameter_store.h"

namespace sluice::runtime {

// Rates of parameters that learn differently from the rest (ParameterStore::set_parameter_groups).
struct ParameterGroup {
  double lr = 0;                       // this step's
  std::optional<double> weight_decay;  // none: the rest's
};

// Muon for matrices of blocks (Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024),
// as torch.optim.Muon computes it: momentum, made orthogonal by Newton-Schulz steps.
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5;  // Newton-Schulz steps
  double eps = 1e-7;
  // The factor on the rate for a matrix [A, B] as in files. True: 0.2 * sqrt(max(A, B)), for updates as large
  // as AdamW's (Liu et al., Muon is Scalable for LLM Training, 2025). False: sqrt(max(1, A / B)).
  bool matches_adamw = true;
};

struct AdamW {
  double lr = 3e-4;  // this step's, after warm-up and decay
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;               // decoupled; none on one-dimensional parameters
  double clip = 1.0;                       // global norm; 0: off
  double moe_router_bias_update_rate = 0;  // for model::Learns::kAsRouterBias, per step
  int64_t update = 1;                      // this update's number, from 1 (bias correction)
  std::vector<ParameterGroup> groups;
  std::optional<Muon> muon;  // for matrices of blocks; none: AdamW for all

  struct Rates {
    double lr = 0;
    double weight_decay = 0;
    auto operator<=>(const Rates&) const = default;
  };
  Rates rates_of(const model::ParameterGroupRun& run) const;
  // Whether the run's numbers learn by AdamW's rule.
  bool updates(const model::ParameterGroupRun& run) const {
    return run.learns == model::Learns::kByGradient && !(muon && run.hidden_matrix);
  }
  // The factor on gradients that are summed over `targets`: mean and clipping.
  double gradient_scale(int64_t targets, double gradient_norm) const;
};

// Sum of squares of this rank's owner gradients, in double. Counts in place of gradients are left out.
double squared_gradient_norm(const ParameterStore& store);

// Divides gradients by `targets` and clips them to `options.clip` given the global norm of the
// divided gradients. Applies one AdamW update to every owner slice, or the rule of its
// model::Learns; refreshes the compute copies. With Muon, only parameters that learn by AdamW
// are updated: update_matrices (runtime/muon.h) comes before. Gradients are undefined
// afterwards.
void update(ParameterStore& store, const AdamW& options, int64_t targets, double gradient_norm);

// The same in one pass over a GPU's memory, with gradients not yet multiplied by `gradient_scale`. Returns
// false and does nothing for stores that the kernel does not take: on the CPU, in double, with coded moments
// or narrow masters. Built with CUDA only.
bool update_by_kernel(ParameterStore& store, const AdamW& options, double gradient_scale);

}  // namespace sluice::runtime
