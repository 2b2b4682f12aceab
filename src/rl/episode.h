// The training data of a step of reinforcement or preference learning: sequences that begin with a prompt,
// with figures of their tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/blend.h"

namespace sluice::rl {

// A conversation up to its last answer, which the model is to generate.
struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> ground_truth;  // the corpus' answer
};
// `mask`: 1 where a token is to be learnt. Nothing if no token is, or if the last run of learnt tokens begins
// the document.
std::optional<Prompt> prompt_of(std::span<const int32_t> tokens, std::span<const uint8_t> mask);
// The same for a document that has a mask.
std::optional<Prompt> prompt_of(const corpus::Blend& blend, int64_t document);

struct Episode {
  std::vector<int32_t> tokens;  // the prompt's, then the response's
  int64_t prompt_tokens = 0;
  double reward = 0;  // the response's, with overlong_penalty(); a group's rewards give advantages
  double advantage = 0;
  double weight = 1;  // in the loss, of each of the response's tokens
  // Log-probabilities of the response's tokens; empty: not known.
  std::vector<double> rollout_log_probs;  // from sampling in the rollout
  std::vector<double> old_log_probs;      // before the updates of its rollout
  std::vector<double> ref_log_probs;      // the reference policy's
  // One for each of the response's tokens if a critic tells them apart; empty: `advantage` holds for all
  // tokens.
  std::vector<double> advantages;
  std::vector<double> values;   // the critic's, before each token and before the rollout's updates
  std::vector<double> returns;  // the critic's targets

  int64_t response_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
  bool operator==(const Episode&) const = default;
};
using MiniBatch = std::vector<Episode>;

// State that a rollout leaves for later steps.
struct Rollout {
  std::vector<MiniBatch> batches;                      // not trained on yet
  std::vector<std::vector<int64_t>> response_lengths;  // tokens of its responses, by prompt
  bool operator==(const Rollout&) const = default;
};
// Numbers keep their bits. InputError naming `name` if the JSON is not a rollout.
base::Json to_json(const Rollout& rollout);
Rollout rollout_from_json(const base::Json& json, const std::string& name);

}  // namespace sluice::rl
