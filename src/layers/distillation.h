// Losses that draw a model's distribution towards a teacher's, over the whole vocabulary (Agarwal et al.,
// On-Policy Distillation of Language Models, GKD, 2024). Both models have the same rows; logits exist for a
// chunk of rows at a time, on each TP rank those of its part of the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "layers/tensor_parallel.h"
#include "model/head_chunk_rows.h"

namespace sluice::layers {

using model::Divergence;

struct Distillation {
  Divergence divergence = Divergence::kForwardKl;
  double beta = 0.5;       // of kJsd, inside (0, 1)
  double temperature = 1;  // both models' logits are divided by it
  double alpha = 1;        // the divergence's part of the loss; the rest is the loss of the targets
  // Rows of the vocabulary that both models have, over which distributions are taken; 0: all. Behind them lie
  // rows that pad either output matrix.
  int64_t entries = 0;
};

// A model's end, without its products: the rows that have a target, behind the final norm, as Targets has
// them on this rank, and this rank's part of the output matrix.
struct HeadRows {
  at::Tensor row_MH;  // undefined: there is no teacher
  at::Tensor output_VH;
  double cap = 0;          // of the logits (model::HeadKind)
  at::Tensor bias_V = {};  // of the logits; undefined: none
};

struct DistilledRows {
  at::Tensor loss_C;      // double, the same on every TP rank
  at::Tensor dlogits_CV;  // gradient of their sum by the trained model's logits
};

// Takes a chunk of rows; logits are float or double and are overwritten. Collective over the TP ranks. Has
// model::distilled_logit_copies() tensors as large as the logits at one time.
DistilledRows distill(const Distillation& distillation, const TensorParallel& parallel,
                      const at::Tensor& logits_CV, const at::Tensor& teacher_CV);

}  // namespace sluice::layers
