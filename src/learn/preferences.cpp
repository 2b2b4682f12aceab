#include "learn/preferences.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "learn/episode_steps.h"
#include "rl/preference.h"
#include "session/sampling.h"

namespace sluice::learn {
namespace {

using base::text;

// None if the document has no prompt and answer, or is longer than the context.
std::optional<rl::Episode> episode_of(const corpus::Blend& blend, int64_t document, int64_t context) {
  if (blend.length(document) > context) return std::nullopt;
  const std::optional<rl::Prompt> prompt = rl::prompt_of(blend, document);
  if (!prompt) return std::nullopt;
  rl::Episode episode;
  episode.prompt_tokens = std::ssize(prompt->tokens);
  episode.tokens = prompt->tokens;
  episode.tokens.insert(episode.tokens.end(), prompt->ground_truth.begin(), prompt->ground_truth.end());
  return episode;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

Preferences::Preferences(run::RunContext& run)
    : run_(run),
      config_(run.config().rl),
      data_(run.start().data().phases.front()),
      chosen_(data_.training.sources(), session::one_by_one(data_.sampling)),
      step_(run.start().state().step) {
  if (run.start().state().sampler) chosen_.restore(*run.start().state().sampler);
  if (config_.algorithm == config::RlAlgorithm::kKto)
    rejected_.emplace(data_.rejected->sources(), data_.sampling);
}

// For kto: the document at the place that counts the answers drawn so far. REQUIRES: one was drawn.
int64_t Preferences::rejected_document(int64_t chosen) {
  if (!rejected_) return chosen;
  const corpus::SamplerState state = chosen_.state();
  int64_t drawn = 0;
  for (const auto& cursor : state.cursors) drawn += cursor.position;
  return rejected_->at(drawn - 1);
}

rl::MiniBatch Preferences::draw() {
  const int64_t context = run_.config().data.context_length;
  rl::MiniBatch batch;
  for (int64_t tries = 0; std::ssize(batch) < 2 * config_.prompts_per_step; ++tries) {
    if (tries > 100 * config_.prompts_per_step) {
      throw base::InputError(text("of ", tries, " pairs of answers only ", batch.size() / 2, " fit into ",
                                  context, " tokens: raise data.context_length"));
    }
    const int64_t document = chosen_.next().samples.front().document;
    std::optional<rl::Episode> chosen = episode_of(data_.training, document, context);
    std::optional<rl::Episode> rejected = episode_of(*data_.rejected, rejected_document(document), context);
    if (!chosen || !rejected) continue;
    batch.push_back(std::move(*chosen));
    batch.push_back(std::move(*rejected));
  }
  return batch;
}

// Each answer behind the next one's prompt, as much of it as the context holds.
rl::MiniBatch Preferences::elsewhere(const rl::MiniBatch& batch) const {
  rl::MiniBatch mismatched;
  for (size_t i = 0; i < batch.size(); ++i) {
    const rl::Episode &prompt = batch[(i + 1) % batch.size()], &answer = batch[i];
    rl::Episode& episode = mismatched.emplace_back();
    episode.prompt_tokens = prompt.prompt_tokens;
    episode.tokens.assign(prompt.tokens.begin(), prompt.tokens.begin() + prompt.prompt_tokens);
    const int64_t room = run_.config().data.context_length - prompt.prompt_tokens;
    const auto begin = answer.tokens.begin() + answer.prompt_tokens;
    episode.tokens.insert(episode.tokens.end(), begin, begin + std::min(room, answer.response_tokens()));
  }
  return mismatched;
}

report::StepRecord Preferences::weigh(rl::MiniBatch& batch) {
  const bool pairs = config_.algorithm == config::RlAlgorithm::kDpo;
  const rl::MiniBatch mismatched = pairs ? rl::MiniBatch() : elsewhere(batch);
  report::StepRecord known;
  const auto sums_of = [&](const rl::MiniBatch& of) {
    std::vector<double> sums;
    if (of.empty()) return sums;
    for (const std::vector<double>& values : log_probabilities(run_, of, step_, known.acts.back()))
      sums.push_back(sum_of(values));
    return sums;
  };
  known.acts.push_back({.name = "policy"});
  std::vector<double> gain = sums_of(batch), gain_elsewhere = sums_of(mismatched);
  {
    known.acts.push_back({.name = "reference"});
    const run::Reference::InPlace parameters(run_.reference());
    const auto subtract = [&](const rl::MiniBatch& of, std::vector<double>& from) {
      const std::vector<double> reference = sums_of(of);
      for (size_t i = 0; i < from.size(); ++i) from[i] -= reference[i];
    };
    subtract(batch, gain);
    subtract(mismatched, gain_elsewhere);
  }
  const rl::PreferenceLoss weighed =
      pairs ? rl::dpo(gain, config_.beta) : rl::kto(gain, gain_elsewhere, config_);
  int64_t targets = 0;
  for (const rl::Episode& episode : batch) targets += episode.response_tokens();
  // The step divides by the number of targets; the loss is a mean over pairs, or answers.
  const auto count = static_cast<double>(pairs ? batch.size() / 2 : batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].advantage = weighed.advantages[i];
    batch[i].weight = static_cast<double>(targets) / count;
  }
  known.loss = weighed.loss;
  known.reward_margin = weighed.reward_margin;
  known.accuracy = weighed.accuracy;
  return known;
}

std::unique_ptr<run::PreparedStep> Preferences::next() {
  if (step_ >= run_.config().train.steps) return nullptr;
  rl::MiniBatch batch = draw();
  report::StepRecord known = weigh(batch);
  auto step = std::make_unique<run::PreparedStep>();
  run_.control().together("planning a step on preferences",
                          [&] { *step = prepare_episodes(run_, batch, step_, graph::Purpose::kTrain); });
  known.shared_prompt_tokens = step->known.shared_prompt_tokens;
  step->known = std::move(known);
  step->sampler_after = chosen_.state();
  step->sampler_after.step = ++step_;
  return step;
}

}  // namespace sluice::learn
