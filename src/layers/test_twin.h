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
  double mtp_loss_weight = 0.0;  // of a model with an MTP layer
  Activations activations = Activations::kKeep;
  double lse_error = 0.0;  // error added to the saved log-sum-exp
  at::Device device = at::kCPU;
  // Shapes by layer, for layers with their own definition (model::BlockType::own): an MLP alone has no heads,
  // a mixer alone no MLP. Empty: all layers have `model`.
  std::vector<model::Outline> layers = {};

  bool groups_experts = false;  // as on a GPU, on a CPU as well

  const model::Outline& shape_of(int64_t layer) const {
    return layers.empty() ? model : layers[static_cast<size_t>(layer)];
  }
};

// Loss sum and the gradient of each bucket's flat array.
struct Outcome {
  double loss_sum = 0.0;
  std::vector<at::Tensor> gradients;
  double mtp_loss_sum = 0.0;
};

struct Data {
  std::vector<at::Tensor> flats;  // by bucket, whole
  std::vector<int64_t> ids;       // end to end
  std::vector<int64_t> targets;   // next token, -1 at the end of a sequence and where masked
};

model::Outline small_shape(int64_t heads, int64_t kv_heads, bool tied);

// Weights, and tokens of c.lengths; some have no target.
Data random_data(const Case& c);

// By row the number of the row behind it in its sequence, or -1.
inline std::vector<int64_t> row_behind(const std::vector<int64_t>& lengths,
                                       const std::vector<int64_t>& of_rows) {
  std::vector<int64_t> behind;
  for (const int64_t length : lengths) {
    for (int64_t i = 1; i < length; ++i) behind.push_back(of_rows[behind.size() + 1]);
    behind.push_back(-1);
  }
  return behind;
}

Outcome run_twin(const Case& c, const Data& data);

}  // namespace sluice::layers
