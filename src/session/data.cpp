#include "session/data.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "session/candidates.h"
#include "session/head_labels.h"
#include "session/rollout_schemes.h"
#include "session/sampling.h"

namespace sluice::session {

using base::text;

namespace {

ValidationData validation_data(std::string name, corpus::Blend blend, const corpus::SamplerOptions& options) {
  std::vector<corpus::Batch> batches = corpus::batches_in_order(blend.sources(), options);
  return {std::move(name), std::move(blend), std::move(batches)};
}

std::vector<ValidationData> open_validation(const config::DataConfig& data,
                                            const corpus::IndexedOptions& indexed,
                                            corpus::SamplerOptions options) {
  std::vector<ValidationData> sets;
  if (options.validation_ppm > 0) {
    options.subset = corpus::Subset::kValidation;
    sets.push_back(validation_data("", corpus::Blend::open(data.train, indexed), options));
  }
  for (const config::ValidationSet& set : data.validation) {
    std::vector<std::pair<std::string, double>> prefixes;
    for (const std::string& prefix : set.prefixes) prefixes.emplace_back(prefix, 1.0);
    sets.push_back(validation_data(set.name, corpus::Blend::open(prefixes, indexed), options));
  }
  for (const ValidationData& set : sets) set.blend.require_targets();
  return sets;
}

// The document with the longest text in one of the blends, and that length. REQUIRES: equally many documents,
// or fewer, which are repeated.
corpus::Sample longest_of_all(const std::vector<const corpus::Blend*>& blends) {
  corpus::Sample longest;
  for (const corpus::Blend* const blend : blends) {
    for (int64_t document = 0; document < blend->documents(); ++document) {
      const int64_t length = blend->length(document);
      if (length > longest.length_tokens) longest = {document, 0, length};
    }
  }
  return longest;
}

// Batches expected with `rl`. A training document is only the beginning of a sequence: responses, or a second
// answer, follow. Their lengths are assumed; one of the longest is included.
std::shared_ptr<const corpus::BatchList> expected_batches(const config::RlConfig& rl,
                                                          const DataPhase& phase) {
  corpus::Sampler prompts(phase.training.sources(), one_by_one(phase.sampling));
  constexpr int64_t kSteps = 32;
  const bool pairs = phase.rejected.has_value();
  const int64_t copies = pairs ? 2 : rl.num_generations;
  const int64_t prompts_per_step =
      pairs ? rl.prompts_per_step
            : (rl.prompts_per_step + rl.updates_per_rollout - 1) / rl.updates_per_rollout;
  auto list = std::make_shared<corpus::BatchList>();
  list->name = "rl";
  list->repeats = true;
  const auto length_of = [&](const corpus::Sample& prompt, int64_t copy) {
    int64_t length = prompt.length_tokens;
    if (pairs && copy == 1) length = phase.rejected->length(prompt.document % phase.rejected->documents());
    if (!pairs) length += expected_response(rl, copy);
    return std::clamp<int64_t>(length, 2, phase.sampling.context_length);
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<corpus::Sample>& samples = list->steps.emplace_back();
    for (int64_t i = 0; i < prompts_per_step; ++i) {
      const corpus::Sample prompt = prompts.next().samples.front();
      for (int64_t copy = 0; copy < copies; ++copy)
        samples.push_back(
            {prompt.document, 0, length_of(prompt, pairs ? copy : copy * prompts_per_step + i)});
    }
  }
  if (pairs) {
    corpus::Sample longest = longest_of_all({&phase.training, &*phase.rejected});
    longest.length_tokens = std::clamp<int64_t>(longest.length_tokens, 2, phase.sampling.context_length);
    list->steps.front().front() = longest;
  } else if (const auto longest = session::longest_sequence(phase.training.sources(), phase.sampling)) {
    list->steps.front().front() = {longest->document, 0, length_of(*longest, kExpectedLengths - 1)};
  }
  return list;
}

constexpr const char* kRewards = "rl.algorithm";

void require_conversations(const corpus::Blend& blend, const std::string& key, const std::string& learning) {
  if (blend.has_mask()) return;
  throw base::InputError(text("[config] ", learning, " needs conversations in ", key,
                              ", whose prompts are what is answered: build the corpus with --chat"));
}

corpus::Blend open_rejected(const config::RlConfig& rl, const corpus::Blend& chosen,
                            const corpus::IndexedOptions& indexed) {
  if (rl.rejected.empty()) {
    throw base::InputError(
        "[config] rl.rejected is empty: name the corpora of worse answers to data.train's documents");
  }
  std::vector<std::pair<std::string, double>> prefixes;
  for (const std::string& prefix : rl.rejected) prefixes.emplace_back(prefix, 1.0);
  corpus::Blend rejected = corpus::Blend::open(prefixes, indexed);
  require_conversations(rejected, "rl.rejected", kRewards);
  if (rl.algorithm == config::RlAlgorithm::kKto || rejected.documents() == chosen.documents())
    return rejected;
  throw base::InputError(text("[config] rl.rejected has ", rejected.documents(), " documents, data.train ",
                              chosen.documents(), ": they are pairs, in the same order"));
}

void open_learning(const config::RlConfig& rl, const corpus::IndexedOptions& indexed, DataPhase& phase) {
  require_conversations(phase.training, "data.train", kRewards);
  for (const ValidationData& set : phase.validation)
    require_conversations(set.blend, "data.validation", kRewards);
  if (phase.listed) throw base::InputError("[config] data.batches and rl.algorithm are both given: keep one");
  if (!rl.rolls_out()) phase.rejected = open_rejected(rl, phase.training, indexed);
  phase.listed = expected_batches(rl, phase);
}

// Expected batches of groups of texts; one of the longest texts is included, so that plans count with it.
std::shared_ptr<const corpus::BatchList> expected_groups(const config::HeadConfig& head,
                                                         const DataPhase& phase) {
  corpus::Sampler documents(phase.training.sources(), group_by_group(head, phase.sampling));
  constexpr int64_t kSteps = 32;
  auto list = std::make_shared<corpus::BatchList>();
  list->name = "head";
  list->repeats = true;
  const auto cut = [&](int64_t length) {
    return std::clamp<int64_t>(length, 2, phase.sampling.context_length);
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<corpus::Sample>& samples = list->steps.emplace_back();
    for (int64_t i = 0; i < head.pairs_per_step; ++i) {
      const int64_t document = documents.next().samples.front().document;
      samples.push_back({document, 0, cut(phase.training.length(document))});
      for (const corpus::Blend& partner : phase.partners)
        samples.push_back({document, 0, cut(partner.length(document))});
    }
  }
  std::vector<const corpus::Blend*> blends{&phase.training};
  for (const corpus::Blend& partner : phase.partners) blends.push_back(&partner);
  corpus::Sample longest = longest_of_all(blends);
  longest.length_tokens = cut(longest.length_tokens);
  list->steps.front().front() = longest;
  return list;
}

void open_partners(const config::HeadConfig& head, const corpus::IndexedOptions& indexed, DataPhase& phase) {
  const auto open = [&](const char* key, const std::vector<std::string>& names) {
    std::vector<std::pair<std::string, double>> prefixes;
    for (const std::string& prefix : names) prefixes.emplace_back(prefix, 1.0);
    corpus::Blend partner = corpus::Blend::open(prefixes, indexed);
    if (partner.documents() != phase.training.documents()) {
      throw base::InputError(text("[config] ", key, " has ", partner.documents(), " documents, data.train ",
                                  phase.training.documents(), ": they belong together, in the same order"));
    }
    phase.partners.push_back(std::move(partner));
  };
  if (head.kind == config::HeadUse::kReward) {
    open("head.rejected", head.rejected);
  } else {
    open("head.positives", head.positives);
    if (!head.negatives.empty()) open("head.negatives", head.negatives);
  }
  if (phase.listed) throw base::InputError("[config] data.batches and head.kind are both given: keep one");
  phase.listed = expected_groups(head, phase);
}

// For rewards: the margin by which each document's answer is to lead, if the corpora have margins.
std::shared_ptr<const corpus::LabelRule> margin_rule() {
  return std::make_shared<const corpus::LabelRule>(
      corpus::LabelRule{.form = corpus::LabelForm::kFigures, .names = {"margin"}});
}

void label_margins(DataPhase& phase) {
  std::vector<corpus::Blend*> blends{&phase.training};
  for (ValidationData& set : phase.validation) blends.push_back(&set.blend);
  for (corpus::Blend* const blend : blends) {
    if (blend->has_labels()) blend->label_by(margin_rule());
  }
}

void label_documents(const model::Model& model, DataPhase& phase) {
  const std::shared_ptr<const corpus::LabelRule> rule = label_rule(model);
  phase.training.label_by(rule);
  for (ValidationData& set : phase.validation) set.blend.label_by(rule);
}

DataPhase open_phase(const config::RunConfig& config, const config::DataConfig& data, int64_t first_step,
                     const corpus::IndexedOptions& indexed) {
  const config::RlConfig& rl = config.rl;
  const corpus::SamplerOptions sampling = sampling_options(data);
  DataPhase phase{.first_step = first_step,
                  .training = corpus::Blend::open(data.train, indexed),
                  .sampling = sampling,
                  .validation = open_validation(data, indexed, sampling)};
  phase.training.require_targets();
  if (config.head.labelled()) label_documents(*config.model.resolved, phase);
  if (config.head.kind == config::HeadUse::kReward) label_margins(phase);
  if (!data.batches.empty()) {
    phase.listed = std::make_shared<const corpus::BatchList>(
        corpus::read_batch_list(data.batches, phase.training, data.context_length));
  }
  if (rl.algorithm != config::RlAlgorithm::kNone) open_learning(rl, indexed, phase);
  if (config.teacher.lmbda > 0) {
    require_conversations(phase.training, "data.train", "teacher.lmbda");
    phase.response_tokens = rl.max_completion_length;
  }
  if (config.head.pairs()) open_partners(config.head, indexed, phase);
  // Throws here if the settings cannot draw any batch.
  phase.batches()->skip(1);
  return phase;
}

}  // namespace

std::unique_ptr<corpus::BatchSource> DataPhase::batches() const {
  if (listed) return std::make_unique<corpus::ListedBatches>(listed, first_step);
  return std::make_unique<corpus::Sampler>(training.sources(), sampling);
}

std::vector<int64_t> DataPhase::sequence_lengths() const {
  return listed ? listed->lengths() : session::sequence_lengths(training.sources(), sampling);
}

namespace {

void keep_longer(const std::vector<corpus::Sample>& samples, std::optional<corpus::Sample>& longest) {
  for (const corpus::Sample& sample : samples) {
    if (!longest || sample.length_tokens > longest->length_tokens) longest = sample;
  }
}

}  // namespace

std::optional<corpus::Sample> longest_training(const DataPhase& phase) {
  std::optional<corpus::Sample> longest;
  if (phase.listed) {
    for (const std::vector<corpus::Sample>& samples : phase.listed->steps) keep_longer(samples, longest);
  } else {
    longest = session::longest_sequence(phase.training.sources(), phase.sampling);
  }
  if (longest) {
    longest->length_tokens =
        std::max(longest->length_tokens,
                 std::min(longest->length_tokens + phase.response_tokens, phase.sampling.context_length));
  }
  return longest;
}

std::optional<corpus::Sample> longest_validation(const DataPhase& phase) {
  std::optional<corpus::Sample> longest;
  for (const ValidationData& set : phase.validation) {
    for (const corpus::Batch& batch : set.batches) keep_longer(batch.samples, longest);
  }
  return longest;
}

size_t Data::index_at(int64_t step) const {
  size_t index = 0;
  while (index + 1 < phases.size() && phases[index + 1].first_step <= step) ++index;
  return index;
}

PhasedSampler Data::sampler() const {
  std::vector<SamplerPhase> samplers;
  for (const DataPhase& phase : phases) {
    samplers.push_back({phase.first_step, phase.batches(), phase.goes_on});
  }
  return PhasedSampler(std::move(samplers));
}

std::vector<int64_t> Data::sequence_lengths() const {
  std::vector<int64_t> all;
  for (const DataPhase& phase : phases) {
    const std::vector<int64_t> own = phase.sequence_lengths();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<std::vector<int64_t>> Data::sample_batches(uint64_t seed) const {
  std::vector<std::vector<int64_t>> batches;
  for (const DataPhase& phase : phases) {
    if (phase.listed && phase.listed->repeats) {
      for (const std::vector<corpus::Sample>& samples : phase.listed->steps) {
        std::vector<int64_t>& lengths = batches.emplace_back();
        for (const corpus::Sample& sample : samples) lengths.push_back(sample.length_tokens);
      }
      continue;
    }
    const std::vector<int64_t> lengths = phase.sequence_lengths();
    for (auto& batch : session::sample_batches(lengths, phase.sampling.tokens_per_step, seed)) {
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

int64_t Data::longest_sequence() const {
  int64_t length = 0;
  for (const DataPhase& phase : phases) {
    for (const auto& longest : {longest_training(phase), longest_validation(phase)}) {
      if (longest) length = std::max(length, longest->length_tokens);
    }
  }
  return length;
}

int64_t Data::loss_ppm() const {
  int64_t most = 0;
  for (const DataPhase& phase : phases) most = std::max(most, phase.training.loss_ppm());
  return most;
}

namespace {

// Throws before the run if a list of batches is too short.
void require_enough(const Data& data, int64_t steps) {
  for (size_t i = 0; i < data.phases.size(); ++i) {
    const DataPhase& phase = data.phases[i];
    if (!phase.listed || phase.listed->repeats) continue;
    const int64_t end = i + 1 < data.phases.size() ? std::min(steps, data.phases[i + 1].first_step) : steps;
    const int64_t needed = end - phase.first_step;
    if (needed <= std::ssize(phase.listed->steps)) continue;
    throw base::InputError(base::text("[config] ", phase.listed->name, " lists ", phase.listed->steps.size(),
                                      " steps, but data.batches is to serve ", needed,
                                      ": list more, or lower train.steps"));
  }
}

}  // namespace

Data open_data(const config::RunConfig& config, corpus::IndexedOptions indexed) {
  if (config.data.train.empty()) {
    throw base::InputError("[config] data.train is empty: name at least one [prefix, weight] pair");
  }
  if (!config.data.validation.empty() && config.data.validation_fraction > 0) {
    throw base::InputError("[config] data.validation and data.validation_fraction are both given: keep one");
  }
  if (config.rl.algorithm != config::RlAlgorithm::kNone && !config.phases.empty())
    throw base::InputError("[config] rl.algorithm and [[phase]] are both given: keep one");
  if (config.teacher.lmbda > 0 && !config.phases.empty())
    throw base::InputError("[config] teacher.lmbda and [[phase]] are both given: keep one");
  if (config.head.pairs() && !config.phases.empty())
    throw base::InputError("[config] head.kind and [[phase]] are both given: keep one");
  if (config.head.pairs() && !config.data.validation.empty()) {
    throw base::InputError(
        "[config] data.validation has no texts that go with it: hold some of data.train out, with "
        "data.validation_fraction");
  }
  indexed.vocabulary = config.model.resolved->vocab();
  Data data;
  data.phases.push_back(open_phase(config, config.data, 0, indexed));
  const config::DataConfig* before = &config.data;
  for (const config::PhaseConfig& phase : config.phases) {
    data.phases.push_back(open_phase(config, phase.data, phase.step, indexed));
    data.phases.back().goes_on = goes_on(*before, phase.data);
    before = &phase.data;
  }
  require_enough(data, config.train.steps);
  return data;
}

}  // namespace sluice::session
