#include "train/pairs.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "session/sampling.h"
#include "train/episode_steps.h"

namespace sluice::train {
namespace {

using base::text;

// None where the document has no prompt and answer, or is longer than the context.
std::optional<rl::Episode> episode_of(const corpus::Blend& blend, int64_t document, int64_t context) {
  if (blend.length(document) > context) return std::nullopt;
  const std::optional<rl::Question> question = rl::question_of(blend, document);
  if (!question) return std::nullopt;
  rl::Episode episode;
  episode.prompt_tokens = std::ssize(question->prompt);
  episode.tokens = question->prompt;
  episode.tokens.insert(episode.tokens.end(), question->answer.begin(), question->answer.end());
  return episode;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

Pairs::Pairs(RunContext& run)
    : run_(run),
      config_(run.config().rl),
      data_(run.data().phases.front()),
      chosen_(data_.training.sources(), session::one_by_one(data_.sampling)),
      step_(run.resumed().step) {
  if (run.resumed().sampler) chosen_.restore(*run.resumed().sampler);
}

rl::MiniBatch Pairs::draw() {
  const int64_t context = run_.config().data.context_length;
  rl::MiniBatch batch;
  for (int64_t tries = 0; std::ssize(batch) < 2 * config_.prompts_per_step; ++tries) {
    if (tries > 100 * config_.prompts_per_step) {
      throw base::InputError(text("of ", tries, " pairs of answers only ", batch.size() / 2, " fit into ",
                                  context, " tokens: raise data.context_length"));
    }
    const int64_t document = chosen_.next().samples.front().document;
    std::optional<rl::Episode> chosen = episode_of(data_.training, document, context);
    std::optional<rl::Episode> rejected = episode_of(*data_.rejected, document, context);
    if (!chosen || !rejected) continue;
    batch.push_back(std::move(*chosen));
    batch.push_back(std::move(*rejected));
  }
  return batch;
}

report::StepRecord Pairs::weigh(rl::MiniBatch& batch) {
  std::vector<std::vector<double>> reference;
  const std::vector<std::vector<double>> own = log_probabilities(run_, batch, step_);
  {
    const RunContext::ReferenceParameters parameters(run_);
    reference = log_probabilities(run_, batch, step_);
  }
  const auto pairs = static_cast<double>(batch.size() / 2);
  int64_t targets = 0;
  for (const rl::Episode& episode : batch) targets += episode.response_tokens();
  double loss = 0, margins = 0, right = 0;
  for (size_t i = 0; i + 1 < batch.size(); i += 2) {
    const double margin = config_.beta * ((sum_of(own[i]) - sum_of(reference[i])) -
                                          (sum_of(own[i + 1]) - sum_of(reference[i + 1])));
    // −log σ(m), and β·σ(−m), without overflow.
    loss += margin > 0 ? std::log1p(std::exp(-margin)) : -margin + std::log1p(std::exp(margin));
    margins += margin;
    right += margin > 0 ? 1 : 0;
    const double pull = config_.beta / (1 + std::exp(margin));
    // The step divides by the number of targets; the loss is a mean over pairs.
    const double weight = static_cast<double>(targets) / pairs;
    batch[i].advantage = pull;
    batch[i + 1].advantage = -pull;
    batch[i].weight = batch[i + 1].weight = weight;
  }
  report::StepRecord known;
  known.loss = loss / pairs;
  known.margin = margins / pairs;
  known.accuracy = right / pairs;
  return known;
}

std::unique_ptr<PreparedStep> Pairs::next() {
  if (step_ >= run_.config().train.steps) return nullptr;
  rl::MiniBatch batch = draw();
  report::StepRecord known = weigh(batch);
  auto step = std::make_unique<PreparedStep>();
  run_.control().together("planning a step on pairs", [&] {
    const EpisodeTokens tokens(batch);
    *step = prepare_step(run_.planning(), sequences_of(batch), &tokens, step_, graph::Purpose::kTrain);
  });
  step->known = std::move(known);
  step->sampler_after = chosen_.state();
  step->sampler_after.step = ++step_;
  return step;
}

}  // namespace sluice::train
