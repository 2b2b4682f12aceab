// Which token comes next: a function of the logits, of how to choose, and of a number that seed, text and
// position decide. So the choice knows neither batch nor pages nor when it was made.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/interval.h"

namespace sluice::generate {

struct Sampling {
  double temperature = 0;  // 0: the likeliest token, of equal ones the lowest
  // Which tokens may come, all together; the likeliest always may.
  int64_t top_k = 0;   // so many of the likeliest; 0: any number
  double top_p = 1.0;  // the fewest likeliest that have this much of the probability (Holtzman et al., 2020)
  double min_p = 0.0;  // those at least so likely as this part of the likeliest (Nguyen et al., 2024)
  uint64_t seed = 0;
  // What is added to tokens' logits before all that; the probabilities that are told know nothing of it. For
  // tokens of the prompt and said ones, positive logits divided by the penalty and others multiplied (Keskar
  // et al., CTRL, 2019); for said ones, less the presence penalty, and less the frequency penalty times how
  // often (OpenAI's).
  std::vector<std::pair<int64_t, double>> logit_bias = {};  // by token
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  bool changes_logits() const {
    return !logit_bias.empty() || repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// A token that could come, and how likely that is.
struct Alternative {
  int64_t token = 0;
  double log_probability = 0;  // of all tokens at temperature 1, whatever may come
  bool operator==(const Alternative&) const = default;
};

struct SampledToken {
  int64_t token = 0;
  double log_probability = 0;             // likewise
  std::vector<Alternative> alternatives;  // the likeliest tokens, the likeliest first
};

// Which rows of the logits are tokens, and what is told of them beside the choice.
struct Choosing {
  std::span<const base::Interval> never;  // ascending: rows that are no token, and never come
  int64_t alternatives = 0;               // that are told
  std::span<const int64_t> tokens = {};   // in front: `given` of a prompt, then said ones
  int64_t given = 0;
};

// `stream` and `position` tell the choices of a seed apart. REQUIRES: a logit that may come, temperature >=
// 0, 0 < top_p <= 1, 0 <= min_p <= 1, as many tokens as alternatives.
SampledToken sample_token(std::span<const double> logits, const Sampling& sampling, uint64_t stream,
                          int64_t position, const Choosing& choosing = {});

// InputError naming the first of these that is outside its range.
void validate(const Sampling& sampling);

}  // namespace sluice::generate
