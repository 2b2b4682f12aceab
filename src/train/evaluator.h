// A model's losses and logits on a corpus, on one rank inside this process: the training engine, forward
// only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "train/model_source.h"

namespace sluice::train {

struct EvaluatorOptions {
  int64_t context_length = 2048;  // longest sequence, tokens
  std::string dtype = "float32";  // that is computed in: float32, bfloat16 or float64
  std::string device = "auto";    // auto (a GPU where there is one) | cpu | cuda
  int threads = 0;                // 0: one a core
};

struct EvaluationResult {
  double loss_sum = 0;  // over all targets
  int64_t targets = 0;
  double mean_loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0.0; }
};

class Evaluator {
 public:
  // Loads the weights. InputError as ModelSource::load.
  Evaluator(ModelSource& model, const EvaluatorOptions& options);
  ~Evaluator();

  // One batch at once. Memory grows with its tokens. REQUIRES: no sequence is longer than context_length.
  EvaluationResult evaluate(const corpus::Blend& blend, const std::vector<corpus::Sample>& samples);

  // [tokens, vocabulary] of one sequence on its own, float or wider, in host memory.
  // REQUIRES: 1 to context_length tokens below the vocabulary.
  at::Tensor logits(const std::vector<int64_t>& tokens);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::train
