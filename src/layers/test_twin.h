// A small model, its data, and an obvious twin: one sequence at a time, full attention matrices, all experts
// on all rows, torch's autograd, no cuts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/outline.h"

namespace sluice::layers {

enum class Activations { kKeep, kRecompute };

struct Case {
  model::Outline model;
  std::vector<int64_t> lengths;
  at::ScalarType dtype = at::kDouble;
  int64_t logits_chunk_bytes = 0;  // 0: the default
  double z_loss = 0.0;
  double moe_aux_loss_coeff = 0.0;
  Activations activations = Activations::kKeep;
  double lse_error = 0.0;  // error added to the saved log-sum-exp
  at::Device device = at::kCPU;
  // Shapes by layer, for layers with their own definition (model::BlockType::own): an MLP alone has no heads,
  // a mixer alone no MLP. Empty: all layers have `model`.
  std::vector<model::Outline> layers = {};

  const model::Outline& shape_of(int64_t layer) const {
    return layers.empty() ? model : layers[static_cast<size_t>(layer)];
  }
};

// Loss sum and the gradient of each bucket's flat array.
struct Outcome {
  double loss_sum = 0.0;
  std::vector<at::Tensor> gradients;
};

struct Data {
  std::vector<at::Tensor> flats;  // by bucket, whole
  std::vector<int64_t> ids;       // end to end
  std::vector<int64_t> targets;   // next token, -1 at the end of a sequence and where masked
};

model::Outline small_shape(int64_t heads, int64_t kv_heads, bool tied);

// Weights, and tokens of c.lengths; some have no target.
Data random_data(const Case& c);

Outcome run_twin(const Case& c, const Data& data);

}  // namespace sluice::layers
