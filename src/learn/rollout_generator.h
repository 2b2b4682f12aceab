// Generation with the model of a run: pipelines hold it for a while (run/rollout_strategy.h), and each
// generates some of the sequences.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "corpus/tokenizer.h"
#include "learn/learnt_rewards.h"
#include "learn/response.h"
#include "report/step_record.h"
#include "rl/episode.h"
#include "rl/reward.h"
#include "run/run_context.h"

namespace sluice::learn {

struct RolloutTimes {
  int64_t pull_ns = 0;
  int64_t generation_ns = 0;  // the slowest rank's
  int64_t reward_ns = 0;      // the slowest rank's, by which rewards ended later than generation
  int64_t tokens = 0;         // generated in all responses
  std::optional<report::ActRecord> learnt_rewards = std::nullopt;
  std::optional<int64_t> predicted_ns;  // for pulling and generating; none: not known
};

// Adds the figures of a rollout, or of one of its draws, to a step's record.
void tell_rollout(const RolloutTimes& times, const std::string& strategy, report::StepRecord& record);

class RolloutGenerator {
 public:
  // Collective. REQUIRES: the run is open and outlives this. InputError if no tokenizer lies beside the
  // corpora, or if a reward of a run with rollouts cannot be made.
  explicit RolloutGenerator(run::RunContext& run);

  enum class SamplingMode : uint8_t { kSampled, kGreedy };
  // Collective: `samples` responses of at most `most_tokens` tokens to each prompt, the same on every rank,
  // without rewards. `numbers` make the prompts' random draws differ, whichever rank draws.
  std::vector<std::vector<Response>> generate(std::span<const std::vector<int32_t>> prompts,
                                              std::span<const uint64_t> numbers, int samples,
                                              int64_t most_tokens, SamplingMode sampling_params);
  // Collective: one sampled response of at most rl.max_completion_length tokens to each prompt, under the
  // rollout strategy that suits the prompts.
  std::vector<Response> respond(std::span<const std::vector<int32_t>> prompts,
                                std::span<const uint64_t> numbers);
  // Collective: `samples` responses to each question, rewarded while others are generated. Failed rewards are
  // logged; with rl.on_bad_reward = "stop" they are a RunError on every rank. REQUIRES: a run with rollouts.
  std::vector<std::vector<Response>> generate_and_score(std::span<const rl::Prompt> questions,
                                                        std::span<const uint64_t> numbers, int samples,
                                                        SamplingMode sampling_params);

  const corpus::Tokenizer& tokenizer() const { return *tokenizer_; }
  // The text of `tokens` as it continues `before`, without end tokens.
  std::string text_of(std::span<const int32_t> tokens, std::span<const int32_t> before = {}) const;
  const RolloutTimes& times() const { return times_; }  // the last rollout's
  // How many tokens the responses of the last sampled rollout had, by question; by them the next one's
  // layout is chosen. A run that is resumed gives those from before.
  const std::vector<std::vector<int64_t>>& previous_response_lengths() const { return earlier_lengths_; }
  void set_previous_response_lengths(std::vector<std::vector<int64_t>> lengths) {
    earlier_lengths_ = std::move(lengths);
  }

 private:
  // Called on a pipeline's first rank for each response that has ended; `prompt`: the prompt's index.
  using Ended = std::function<void(size_t prompt, int sample, const Response& response)>;
  // The responses to the pipeline's share of the prompts, on its first rank; all other entries are empty.
  std::vector<std::vector<Response>> generate_own(std::span<const std::vector<int32_t>> prompts,
                                                  std::span<const uint64_t> numbers, int samples,
                                                  int64_t most_tokens, SamplingMode sampling_params,
                                                  const Ended& ended = {});
  // The layout of a rollout to such prompts; keeps what it is predicted to take.
  void choose_layout(std::span<const std::vector<int32_t>> prompts);
  void remember_lengths(const std::vector<std::vector<Response>>& responses);
  // Logs how many rewards failed, of how many, and why the first did.
  void tell_faults(std::span<const rl::Verdict> verdicts) const;
  void share(std::vector<std::vector<Response>>& responses);
  bool is_end(int64_t token) const;

  run::RunContext& run_;
  std::unique_ptr<corpus::Tokenizer> tokenizer_;
  std::unique_ptr<rl::Reward> reward_;
  std::unique_ptr<LearntRewards> learnt_rewards_;  // null: none is configured
  std::vector<int64_t> end_tokens_;
  std::vector<std::vector<int64_t>> earlier_lengths_;
  RolloutTimes times_;
};

}  // namespace sluice::learn
