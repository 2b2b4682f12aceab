// The corpora of a run, for training and evaluation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/batch_list.h"
#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "session/phased_sampler.h"

namespace sluice::session {

// Evaluation goes through its batches in order; `blend` resolves their documents.
struct ValidationData {
  std::string name;  // the set's name; empty: the only set
  corpus::Blend blend;
  std::vector<corpus::Batch> batches;
};

// The data of training and evaluation from a step on.
struct DataPhase {
  int64_t first_step = 0;
  bool goes_on = false;  // as SamplerPhase's
  corpus::Blend training;
  corpus::SamplerOptions sampling;
  // The batches that training takes instead of drawing; null: it draws. With [rl]: expected ones, for plans.
  std::shared_ptr<const corpus::BatchList> listed;
  int64_t response_tokens = 0;  // most generated tokens that may replace a document's last answer
  std::vector<ValidationData> validation;
  std::optional<corpus::Blend> rejected;  // worse answers for preference learning, document by document
  // The other texts of each training document's group, in the same order, for heads that learn from groups
  // (config::HeadConfig::pairs).
  std::vector<corpus::Blend> partners;

  std::unique_ptr<corpus::BatchSource> batches() const;
  // Lengths of all sequences that training meets.
  std::vector<int64_t> sequence_lengths() const;
};

struct Data {
  std::vector<DataPhase> phases;  // at least one; the first from step 0 on

  // The phase of a step, and its index.
  size_t index_at(int64_t step) const;
  const DataPhase& at(int64_t step) const { return phases[index_at(step)]; }

  PhasedSampler sampler() const;
  // Lengths of all sequences of all phases.
  std::vector<int64_t> sequence_lengths() const;
  // Lengths by batch for proposing strategies, from every phase, as session::sample_batches.
  std::vector<std::vector<int64_t>> sample_batches(uint64_t seed) const;
  // Parts per million of training's tokens that have a loss, in the phase with the largest share.
  int64_t loss_ppm() const;
  // The length of the longest sequence that training or evaluation meets.
  int64_t longest_sequence() const;
};

// The longest sequence of a phase's training, and of its evaluation, if any. Documents are numbered as in
// their blends.
std::optional<corpus::Sample> longest_training(const DataPhase& phase);
std::optional<corpus::Sample> longest_validation(const DataPhase& phase);

// Opens the configuration's corpora. InputError as corpus::Blend and corpus::Sampler, or if no training
// corpus is named, both kinds of validation are, or a mask leaves no targets. REQUIRES:
// config.model.resolved. `indexed`: how corpora in buckets are found; its vocabulary is replaced by the
// model's.
Data open_data(const config::RunConfig& config, corpus::IndexedOptions indexed = {});

}  // namespace sluice::session
