// Losses that draw a model's distribution towards a teacher's, over the whole vocabulary (Agarwal et al.,
// On-Policy Distillation of Language Models, GKD, 2024), or towards those of several teachers, by the
// weighted sum of the divergences. All models have the same rows. Logits exist for a chunk of rows at a time;
// each TP rank has those of its part of the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/tensor_parallel.h"
#include "model/head_chunk_rows.h"

namespace sluice::layers {

using model::Divergence;

struct Teacher {
  double weight = 1;  // of its divergence in the loss
  // Vocabulary entries that it has in common with the trained model and over which distributions are taken;
  // 0: all. The entries behind them only pad an output matrix.
  int64_t entries = 0;
};

struct Distillation {
  Divergence divergence = Divergence::kForwardKl;
  double beta = 0.5;       // kJsd: the teacher's weight, inside (0, 1)
  double temperature = 1;  // both models' logits are divided by it
  double alpha = 1;        // weight of the divergences; 1 − alpha weighs the targets' own loss
  std::vector<Teacher> teachers = {{}};
};

// A model's end before its output product: the rows with a target after the final norm, laid out as in
// Targets, and this rank's part of the output matrix.
struct HeadRows {
  at::Tensor row_MH;
  at::Tensor output_VH;
  double cap = 0;          // logit cap (model::HeadKind)
  at::Tensor bias_V = {};  // logit bias; undefined: none
};

struct DistilledRows {
  at::Tensor loss_C;      // double, the same on every TP rank
  at::Tensor dlogits_CV;  // gradient of the losses' sum by the trained model's logits
};

// Losses and gradients of a chunk of rows. Logits are float or double and are overwritten. Collective over
// the TP ranks. At most model::distilled_logit_copies() tensors as large as the logits exist at one time.
DistilledRows distill(const Distillation& distillation, const TensorParallel& parallel,
                      const at::Tensor& logits_CV, const at::Tensor& teacher_CV);

}  // namespace sluice::layers
