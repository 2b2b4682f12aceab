// What a step of reinforcement or preference learning trains on: texts that begin with a prompt, and what is
// told of their tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/blend.h"

namespace sluice::rl {

// A conversation whose last answer is what is asked for.
struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> ground_truth;  // as the corpus has it
};
// `mask`: 1 where a token is to be learnt. Nothing where the last run of those is empty or begins the
// document.
std::optional<Prompt> prompt_of(std::span<const int32_t> tokens, std::span<const uint8_t> mask);
// Likewise of a document that has a mask.
std::optional<Prompt> prompt_of(const corpus::Blend& blend, int64_t document);

struct Episode {
  std::vector<int32_t> tokens;  // the prompt's, then the response's
  int64_t prompt_tokens = 0;
  double reward = 0;  // of the response, overlong ones punished; advantages follow from a group's
  double advantage = 0;
  double weight = 1;  // of each token of the response in the loss
  // Log-probabilities of the response's tokens; empty: not known.
  std::vector<double> rollout_log_probs;  // as the rollout knew them
  std::vector<double> old_log_probs;      // before the updates of its rollout
  std::vector<double> ref_log_probs;      // of the policy that the trained one stays near
  // One for each of the response's tokens, where a critic tells them apart; empty: `advantage` is all
  // tokens'.
  std::vector<double> advantages;
  std::vector<double> values;   // expected before each token, ahead of the rollout's updates
  std::vector<double> returns;  // what the critic is to expect

  int64_t response_tokens() const { return static_cast<int64_t>(tokens.size()) - prompt_tokens; }
  bool operator==(const Episode&) const = default;
};
using MiniBatch = std::vector<Episode>;

// What a rollout leaves for later steps.
struct Rollout {
  std::vector<MiniBatch> batches;                      // not trained on yet
  std::vector<std::vector<int64_t>> response_lengths;  // tokens of its responses, by question
  bool operator==(const Rollout&) const = default;
};
// Numbers keep their bits. InputError naming `name` when it is none.
base::Json to_json(const Rollout& rollout);
Rollout rollout_from_json(const base::Json& json, const std::string& name);

}  // namespace sluice::rl
