#include "run/epochs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/keys.h"
#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "rl/objective.h"
#include "session/sampling.h"

namespace sluice::run {

using base::text;

namespace {

[[noreturn]] void refuse(double epochs, const std::string& why) {
  throw base::InputError(
      text("[config] train.epochs is ", epochs, ", but ", why, ": set train.steps instead"));
}

void require_countable(const config::RunConfig& config) {
  const double epochs = config.train.epochs;
  if (!config.phases.empty()) refuse(epochs, "[[phase]] changes the data by steps");
  if (!config.data.batches.empty()) refuse(epochs, "data.batches lists the steps itself");
  if (config.rl.rolls_out() && rl::objective_of(config.rl).dynamic_sampling)
    refuse(epochs, "rl.dynamic_sampling draws as many prompts as it needs, which nobody knows before");
}

// Rollouts, preferences and heads of pairs draw whole documents one by one.
int64_t steps_of_documents(const config::RunConfig& config, const corpus::Blend& blend) {
  const auto options = session::one_by_one(session::sampling_options(config.data));
  const auto documents = static_cast<double>(session::sequence_lengths(blend.sources(), options).size());
  const int64_t of_step = config.head.pairs() ? config.head.pairs_per_step : config.rl.prompts_per_step;
  const double draws = std::ceil(config.train.epochs * documents / static_cast<double>(of_step));
  return static_cast<int64_t>(draws) * (config.rl.rolls_out() ? config.rl.updates_per_rollout : 1);
}

int64_t steps_of_tokens(const config::RunConfig& config, const corpus::Blend& blend) {
  const corpus::SamplerOptions options = session::sampling_options(config.data);
  const std::vector<int64_t> lengths = session::sequence_lengths(blend.sources(), options);
  const int64_t pass = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const double wanted = config.train.epochs * static_cast<double>(pass);
  // No step draws more tokens, so a run beyond the limit is refused before its steps are counted.
  const auto most = static_cast<double>(std::max(config.data.tokens_per_step, config.data.context_length));
  if (wanted / most > static_cast<double>(config::kMostSteps)) return config::kMostSteps + 1;
  corpus::Sampler sampler(blend.sources(), options);
  int64_t steps = 0;
  for (double drawn = 0; drawn < wanted; ++steps) drawn += static_cast<double>(sampler.next().tokens);
  return steps;
}

}  // namespace

int64_t steps_of_epochs(const config::RunConfig& config, corpus::IndexedOptions indexed) {
  require_countable(config);
  indexed.vocabulary = config.model.resolved->vocab();
  const corpus::Blend blend = corpus::Blend::open(config.data.train, indexed);
  const bool learns_from_corpora = config.rl.algorithm == config::RlAlgorithm::kNone && !config.head.pairs();
  const int64_t steps =
      learns_from_corpora ? steps_of_tokens(config, blend) : steps_of_documents(config, blend);
  if (steps > config::kMostSteps)
    refuse(config.train.epochs, text("a run has at most ", config::kMostSteps, " steps"));
  return std::max<int64_t>(steps, 1);
}

void resolve_epochs(config::RunConfig& config, const corpus::IndexedOptions& indexed) {
  if (config.train.epochs > 0) config.train.steps = steps_of_epochs(config, indexed);
}

}  // namespace sluice::run
