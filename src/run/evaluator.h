// Computes a model's losses and logits on a corpus: the training engine, forward only, on one rank or on all
// ranks of a launch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "generate/decoder.h"
#include "run/model_source.h"
#include "run/sequence_numbers.h"
#include "transport/launch.h"

namespace sluice::run {

struct EvaluatorOptions {
  int64_t context_length = 2048;                              // longest sequence, tokens
  config::ComputeType dtype = config::ComputeType::kFloat32;  // for compute
  config::DeviceChoice device = config::DeviceChoice::kAuto;
  int threads = 0;           // 0: the cores divided by the ranks of this machine
  transport::Launch launch;  // this rank among all
  std::string strategy;      // how the ranks share the model; empty: each holds all of it
};

struct EvaluationResult {
  double loss_sum = 0;  // over all targets
  int64_t targets = 0;
  // A head of numbers only: per sample, as sequence_numbers().
  std::vector<std::vector<RowNumbers>> numbers = {};
  double mean_loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0.0; }
};

class Evaluator {
 public:
  // Loads the weights; collective over all ranks of the launch, as evaluate(). InputError as
  // ModelSource::load, or when the strategy does not fit the model or the ranks.
  Evaluator(ModelSource& model, const EvaluatorOptions& options);
  ~Evaluator();

  // One batch at once, spread over the ranks; the same result on all. Memory grows with its tokens. REQUIRES:
  // no sequence is longer than context_length.
  EvaluationResult evaluate(const corpus::Blend& blend, const std::vector<corpus::Sample>& samples);

  // The head's numbers at each text's last token, or an embedding model's row; the same on all ranks. Memory
  // grows with the texts' tokens. REQUIRES: a head of numbers; texts of 1 to context_length tokens.
  std::vector<std::vector<double>> text_numbers(const std::vector<std::vector<int32_t>>& texts);

  // Replaces the weights by another model's, also in shards that model_shard() returned. Collective, as the
  // constructor. InputError on all ranks, with the weights unchanged, if one rank cannot open the model, or
  // its model differs.
  void reload(const std::function<ModelSource()>& open);

  // Collective: this rank's part of the present model. It is valid while the evaluator lives and, on several
  // ranks, until the next batch is evaluated. REQUIRES: pipelines that can generate (parse_rollout_strategy).
  generate::ModelShard model_shard();

  // The communicator of all ranks, for tensors in host memory.
  comm::Communicator& ranks();
  // Collective barrier of all ranks.
  void wait_for_all();

  // Logits [tokens, vocabulary] of one sequence by itself, float or wider, in host memory.
  // REQUIRES: 1 to context_length tokens below the vocabulary; one rank.
  at::Tensor logits(const std::vector<int64_t>& tokens);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::run
