// Sampling of the next token: a function of the logits, the sampling parameters, and a random number that
// follows from seed, sequence and position. The result depends neither on the batch nor on the cache's
// layout.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/interval.h"

namespace sluice::generate {

struct Sampling {
  double temperature = 0;  // 0: greedy, the lowest of equally likely tokens
  // Candidates must pass all three; the likeliest token always does.
  int64_t top_k = 0;   // the likeliest top_k tokens; 0: all
  double top_p = 1.0;  // the fewest likeliest tokens with this total probability (Holtzman et al., 2020)
  double min_p = 0.0;  // tokens with at least this fraction of the highest probability (Nguyen et al., 2024)
  uint64_t seed = 0;
  // Changes of logits before all of these. Reported probabilities ignore them.
  std::vector<std::pair<int64_t, double>> logit_bias = {};  // added, by token
  // For tokens of the prompt and the output: positive logits are divided by it, negative ones multiplied
  // (Keskar et al., CTRL, 2019).
  double repetition_penalty = 1.0;
  // For tokens of the output, subtracted: once, and as often as the token was generated (OpenAI's).
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  bool changes_logits() const {
    return !logit_bias.empty() || repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// A token that could have been sampled.
struct Alternative {
  int64_t token = 0;
  double log_probability = 0;  // among all tokens at temperature 1
  bool operator==(const Alternative&) const = default;
};

struct SampledToken {
  int64_t token = 0;
  double log_probability = 0;             // likewise
  std::vector<Alternative> alternatives;  // the likeliest first
};

// The context of a draw.
struct SamplingContext {
  std::span<const base::Interval> never;  // ascending: rows of the logits that are no tokens
  int64_t alternatives = 0;               // to report
  std::span<const int64_t> tokens = {};   // so far: `prompt_tokens` of the prompt, then generated ones
  int64_t prompt_tokens = 0;
};

// A logit that repetition changes: a positive one is divided by `repetition`, another multiplied; then `less`
// is subtracted.
struct LogitPenalty {
  int64_t token = 0;
  double repetition = 1;
  double less = 0;
};
// Penalties of the context's tokens, each once, in any order, without tokens outside of the vocabulary.
std::vector<LogitPenalty> penalties_of(const Sampling& sampling, const SamplingContext& context,
                                       int64_t vocabulary);

// The random number follows from the seed, `stream` and `position`. REQUIRES: a row that is a token,
// temperature >= 0, 0 < top_p <= 1, 0 <= min_p <= 1, at least as many tokens as alternatives.
SampledToken sample_token(std::span<const double> logits, const Sampling& sampling, uint64_t stream,
                          int64_t position, const SamplingContext& context = {});

// InputError naming the first of these that is outside its range.
void validate(const Sampling& sampling);

}  // namespace sluice::generate
