#include "learn/student_responses.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"
#include "learn/episode_steps.h"

namespace sluice::learn {

bool is_on_policy(int64_t step, double lmbda) {
  const auto number = static_cast<double>(step);
  return std::floor((number + 1) * lmbda) > std::floor(number * lmbda);
}

StudentResponses::StudentResponses(run::RunContext& run, RolloutGenerator& generator)
    : run_(run), generator_(generator), batches_(run.start().sampler()) {}

std::unique_ptr<run::PreparedStep> StudentResponses::next() {
  if (batches_.step() >= run_.config().train.steps) return nullptr;
  corpus::Batch batch;
  run_.control().together("drawing a batch", [&] { batch = batches_.next(); });
  auto step = std::make_unique<run::PreparedStep>(prepare(batch));
  step->sampler_after = batches_.state();
  return step;
}

run::PreparedStep StudentResponses::prepare(const corpus::Batch& batch) {
  told_ = {};
  rl::MiniBatch episodes;
  if (is_on_policy(batch.step, run_.config().teacher.lmbda)) episodes = answered(batch);
  run::PreparedStep step;
  run_.control().together("planning a step", [&] {
    step = episodes.empty()
               ? run::prepare_step(run_.planning().inputs(), run_.start().data().phases.front().training,
                                   batch.step, batch.samples, graph::Purpose::kTrain)
               : prepare_episodes(run_, episodes, batch.step, graph::Purpose::kTrain);
  });
  step.known = std::exchange(told_, {});
  return step;
}

rl::MiniBatch StudentResponses::answered(const corpus::Batch& batch) {
  const corpus::Blend& blend = run_.start().data().phases.front().training;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<uint64_t> numbers;
  run_.control().together("reading prompts", [&] {
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      if (batch.samples[i].begin_token > 0) continue;  // the sample that begins its conversation answers it
      std::optional<rl::Prompt> prompt = rl::prompt_of(blend, batch.samples[i].document);
      if (!prompt || std::ssize(prompt->tokens) >= run_.config().data.context_length) continue;
      prompts.push_back(std::move(prompt->tokens));
      // The number is unique in the run, so that no other response has the same random draws.
      numbers.push_back(static_cast<uint64_t>(batch.step) * corpus::BatchSource::kMostSequences + i);
    }
  });
  rl::MiniBatch episodes;
  if (prompts.empty()) {
    if (run_.rank() == 0)
      base::log_warning(base::text("step ", batch.step, ": no prompt of its documents leaves room for a ",
                                   "response in data.context_length, ", run_.config().data.context_length,
                                   " tokens: it learns from the documents"));
    return episodes;
  }
  const std::vector<Response> responses = generator_.respond(prompts, numbers);
  for (size_t i = 0; i < prompts.size(); ++i) {
    rl::Episode& episode = episodes.emplace_back();
    episode.prompt_tokens = std::ssize(prompts[i]);
    episode.tokens = std::move(prompts[i]);
    episode.tokens.insert(episode.tokens.end(), responses[i].tokens.begin(), responses[i].tokens.end());
  }
  told_ = describe(episodes, responses, batch.step);
  return episodes;
}

report::StepRecord StudentResponses::describe(const rl::MiniBatch& episodes,
                                              const std::vector<Response>& responses, int64_t step) const {
  report::StepRecord told;
  tell_rollout(generator_.times(), to_text(run_.rollout_strategy().strategy()), told);
  std::vector<int64_t> lengths;
  double entropy = 0;
  for (const Response& response : responses) {
    lengths.push_back(std::ssize(response.tokens));
    entropy -= std::accumulate(response.log_probabilities.begin(), response.log_probabilities.end(), 0.0);
  }
  std::ranges::sort(lengths);
  const auto tokens = static_cast<double>(generator_.times().tokens);
  told.entropy = entropy / std::max(tokens, 1.0);
  told.response_mean = tokens / static_cast<double>(lengths.size());
  told.response_p99 = lengths[(lengths.size() - 1) * 99 / 100];
  const int64_t every = run_.config().log.completions_every;
  if (run_.rank() != 0 || every == 0 || step % every != 0) return told;
  constexpr size_t kShown = 2;
  for (size_t i = 0; i < std::min(kShown, episodes.size()); ++i) {
    const auto prompt = std::span(episodes[i].tokens).first(static_cast<size_t>(episodes[i].prompt_tokens));
    const auto shown = [](const std::string& words) { return base::printable(words, base::Layout::kLines); };
    told.completions.push_back({.step = step,
                                .prompt = shown(generator_.text_of(prompt)),
                                .completion = shown(generator_.text_of(responses[i].tokens, prompt)),
                                .reward = std::nullopt,
                                .tokens = std::ssize(responses[i].tokens),
                                .finish_reason = responses[i].finish_reason ? "stop" : "length"});
  }
  return told;
}

}  // namespace sluice::learn
