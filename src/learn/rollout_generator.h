// What the model of a run says: pipelines hold it for a while (run/rollout_strategy.h), and each
// says some of the texts.
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
  int64_t generation_ns = 0;  // of the slowest rank
  int64_t reward_ns = 0;      // likewise, that rewards took longer
  int64_t tokens = 0;         // of all responses
  std::optional<report::ActRecord> learnt_rewards = std::nullopt;
  std::optional<int64_t> predicted_ns;  // of pulling and speaking; none: not known
};

// Adds a rollout, or a draw of one, to what a step's record tells of its own.
void tell_rollout(const RolloutTimes& times, const std::string& strategy, report::StepRecord& record);

class RolloutGenerator {
 public:
  // Collective. The run is open; it outlives this. InputError when no tokenizer lies beside the corpora, or,
  // in a run with rollouts, a reward cannot be made.
  explicit RolloutGenerator(run::RunContext& run);

  enum class SamplingMode : uint8_t { kSampled, kGreedy };
  // Collective: `samples` responses of so many tokens at most behind each prompt, the same on every rank,
  // without rewards. `numbers` tell the draws of prompts apart, whichever rank makes them.
  std::vector<std::vector<Response>> generate(std::span<const std::vector<int32_t>> prompts,
                                              std::span<const uint64_t> numbers, int samples,
                                              int64_t most_tokens, SamplingMode sampling_params);
  // Collective: one sampled response of rl.max_completion_length tokens at most to each prompt, under the
  // rollout strategy that suits the prompts.
  std::vector<Response> respond(std::span<const std::vector<int32_t>> prompts,
                                std::span<const uint64_t> numbers);
  // Collective: the same to each question, rewarded while others are said. Where a reward fails, that is
  // said, and with rl.on_bad_reward = "stop" it is a RunError on every rank. REQUIRES: a run with rollouts.
  std::vector<std::vector<Response>> generate_and_score(std::span<const rl::Prompt> questions,
                                                        std::span<const uint64_t> numbers, int samples,
                                                        SamplingMode sampling_params);

  const corpus::Tokenizer& tokenizer() const { return *tokenizer_; }
  // Behind other tokens, without what ended it.
  std::string text_of(std::span<const int32_t> tokens, std::span<const int32_t> before = {}) const;
  const RolloutTimes& times() const { return times_; }  // of the last rollout
  // How many tokens the responses of the last sampled rollout had, by question; by them the next one's
  // layout is chosen. A run that is resumed gives those from before.
  const std::vector<std::vector<int64_t>>& previous_response_lengths() const { return earlier_lengths_; }
  void set_previous_response_lengths(std::vector<std::vector<int64_t>> lengths) {
    earlier_lengths_ = std::move(lengths);
  }

 private:
  // Called with each response when it has ended, by the rank that tells, and the prompt's number.
  using Ended = std::function<void(size_t prompt, int sample, const Response& response)>;
  // Of its pipeline's share of the prompts; of others none, and on all but the pipeline's first rank none.
  std::vector<std::vector<Response>> generate_own(std::span<const std::vector<int32_t>> prompts,
                                                  std::span<const uint64_t> numbers, int samples,
                                                  int64_t most_tokens, SamplingMode sampling_params,
                                                  const Ended& ended = {});
  // The layout of a rollout to such prompts; keeps what it is predicted to take.
  void choose_layout(std::span<const std::vector<int32_t>> prompts);
  void remember_lengths(const std::vector<std::vector<Response>>& responses);
  // Says what rewards failed, of so many.
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
