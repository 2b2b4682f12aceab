// The corpora of a run: what is trained on and what is evaluated.
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
  std::string name;  // of the set; empty: the only one
  corpus::Blend blend;
  std::vector<corpus::Batch> batches;
};

// What is trained on and evaluated from a step on.
struct DataPhase {
  int64_t first_step = 0;
  bool goes_on = false;  // as SamplerPhase's
  corpus::Blend training;
  corpus::SamplerOptions sampling;
  // What training takes instead; null: it draws. Of runs with [rl] what is expected, to plan with.
  std::shared_ptr<const corpus::BatchList> listed;
  int64_t response_tokens = 0;  // that training may put in place of a document's last answer, at most
  std::vector<ValidationData> validation;
  std::optional<corpus::Blend> rejected;  // what preferences are learnt against, document by document
  // Of heads that learn from texts that belong together (config::HeadConfig::pairs): what goes with
  // training's documents, in the same order.
  std::vector<corpus::Blend> partners;

  std::unique_ptr<corpus::BatchSource> batches() const;
  // Of all sequences that training meets.
  std::vector<int64_t> sequence_lengths() const;
};

struct Data {
  std::vector<DataPhase> phases;  // at least one; the first from step 0 on

  // The phase of a step, and its index.
  size_t index_at(int64_t step) const;
  const DataPhase& at(int64_t step) const { return phases[index_at(step)]; }

  PhasedSampler sampler() const;
  // Of all sequences of all phases.
  std::vector<int64_t> sequence_lengths() const;
  // Lengths by batch to propose strategies with: of every phase, as session::sample_batches.
  std::vector<std::vector<int64_t>> sample_batches(uint64_t seed) const;
  // Parts per million of the tokens that training's loss counts, in the phase in which most do.
  int64_t loss_ppm() const;
  // The length of the longest sequence that training or evaluation meets.
  int64_t longest_sequence() const;
};

// The longest sequence that training can meet in a phase, and that its evaluation meets, if any; numbered in
// their blends.
std::optional<corpus::Sample> longest_training(const DataPhase& phase);
std::optional<corpus::Sample> longest_validation(const DataPhase& phase);

// Opens the configuration's corpora. InputError as corpus::Blend and corpus::Sampler, or when no training
// corpus is named, both kinds of validation are, or a mask leaves nothing to learn from. REQUIRES:
// config.model.shape. `indexed` says where corpora in buckets are found; its vocabulary is the model's.
Data open_data(const config::RunConfig& config, corpus::IndexedOptions indexed = {});

}  // namespace sluice::session
