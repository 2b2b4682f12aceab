#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/range.h"
#include "base/rng.h"

namespace sluice::generate {
namespace {

double log_sum_exp(std::span<const double> logits, double most) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

// Tokens by descending weight, ties by ascending token; sorted only as far as needed.
class LikeliestFirst {
 public:
  explicit LikeliestFirst(const std::vector<double>& weights) : weights_(weights), order_(weights.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  }
  size_t at(size_t place) {
    constexpr size_t kFirst = 64, kTimes = 8;
    if (place >= sorted_) {
      const size_t end = std::min(order_.size(), std::max(kFirst, kTimes * sorted_));
      const auto from = order_.begin() + static_cast<std::ptrdiff_t>(sorted_);
      std::partial_sort(from, order_.begin() + static_cast<std::ptrdiff_t>(end), order_.end(),
                        [this](size_t a, size_t b) {
                          return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
                        });
      sorted_ = end;
    }
    return order_[place];
  }

 private:
  const std::vector<double>& weights_;
  std::vector<size_t> order_;
  size_t sorted_ = 0;
};

// Calls visit(begin, end) with each run of rows that are tokens.
template <typename Visit>
void for_each_run(size_t rows, std::span<const base::Interval> never, Visit visit) {
  size_t begin = 0;
  for (const base::Interval& none : never) {
    const size_t end = std::min(rows, static_cast<size_t>(none.begin));
    if (begin < end) visit(begin, end);
    begin = std::max(begin, static_cast<size_t>(none.end));
  }
  if (begin < rows) visit(begin, rows);
}

// Ties go to the lowest token.
size_t likeliest_of(std::span<const double> logits, std::span<const base::Interval> never) {
  size_t likeliest = logits.size();
  for_each_run(logits.size(), never, [&](size_t begin, size_t end) {
    const auto found = std::ranges::max_element(logits.subspan(begin, end - begin));
    const size_t token = begin + static_cast<size_t>(found - logits.subspan(begin).begin());
    if (likeliest == logits.size() || logits[token] > logits[likeliest]) likeliest = token;
  });
  SLUICE_ASSERT(likeliest < logits.size(), "no row is a token");
  return likeliest;
}

std::vector<Alternative> alternatives_of(std::span<const double> logits, const SamplingContext& context,
                                         double all) {
  std::vector<size_t> tokens;
  for_each_run(logits.size(), context.never, [&](size_t begin, size_t end) {
    for (size_t token = begin; token < end; ++token) tokens.push_back(token);
  });
  const auto count = std::min(tokens.size(), static_cast<size_t>(context.alternatives));
  std::partial_sort(
      tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count), tokens.end(),
      [&](size_t a, size_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<Alternative> alternatives;
  for (size_t i = 0; i < count; ++i)
    alternatives.push_back({static_cast<int64_t>(tokens[i]), logits[tokens[i]] - all});
  return alternatives;
}

// By token: its weight among the candidates; 0: no candidate.
std::vector<double> weights_of(std::span<const double> logits, const Sampling& sampling,
                               std::span<const base::Interval> never, double most) {
  std::vector<double> weights(logits.size());
  for_each_run(logits.size(), never, [&](size_t begin, size_t end) {
    for (size_t token = begin; token < end; ++token)
      weights[token] = std::exp((logits[token] - most) / sampling.temperature);
  });
  const bool all = sampling.top_k == 0 && sampling.top_p >= 1.0 && sampling.min_p == 0.0;
  if (all) return weights;

  const double enough = sampling.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  const double least = sampling.min_p;  // the likeliest weighs 1
  const size_t few =
      sampling.top_k == 0 ? weights.size() : std::min(weights.size(), static_cast<size_t>(sampling.top_k));
  std::vector<double> kept(weights.size());
  double before = 0;  // sum of the likelier ones
  size_t place = 0;
  // Usually few of many tokens are candidates, so sorting is partial.
  for (LikeliestFirst order(weights); place < few && (place == 0 || before < enough); ++place) {
    const size_t token = order.at(place);
    if (place > 0 && weights[token] < least) break;
    kept[token] = weights[token];
    before += weights[token];
  }
  return kept;
}

// The logits after all changes, from which tokens are drawn.
std::vector<double> adjusted(std::span<const double> logits, const Sampling& sampling,
                             const SamplingContext& context) {
  std::vector<double> made(logits.begin(), logits.end());
  for (const auto& [token, repetition, less] : penalties_of(sampling, context, std::ssize(made))) {
    double& logit = made[static_cast<size_t>(token)];
    logit = (logit > 0 ? logit / repetition : logit * repetition) - less;
  }
  for (const auto& [token, bias] : sampling.logit_bias) made[static_cast<size_t>(token)] += bias;
  return made;
}

size_t drawn(std::span<const double> logits, const Sampling& sampling, uint64_t stream, int64_t position,
             const SamplingContext& context) {
  size_t token = likeliest_of(logits, context.never);
  if (sampling.temperature <= 0) return token;
  const std::vector<double> weights = weights_of(logits, sampling, context.never, logits[token]);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = sum * base::random_uniform(sampling.seed, stream, static_cast<uint64_t>(position));
  // Rounding may leave a little after the last candidate; the likeliest token is drawn then.
  for (size_t each = 0; each < weights.size(); ++each) {
    if (weights[each] == 0) continue;
    if (left < weights[each]) return each;
    left -= weights[each];
  }
  return token;
}

}  // namespace

std::vector<LogitPenalty> penalties_of(const Sampling& sampling, const SamplingContext& context,
                                       int64_t vocabulary) {
  std::unordered_map<int64_t, int64_t> generated;  // how often; 0: in the prompt alone
  for (size_t i = 0; i < context.tokens.size(); ++i)
    generated[context.tokens[i]] += static_cast<int64_t>(i) < context.prompt_tokens ? 0 : 1;
  std::vector<LogitPenalty> penalties;
  for (const auto& [token, times] : generated) {
    if (token < 0 || token >= vocabulary) continue;
    LogitPenalty& penalty = penalties.emplace_back(token, sampling.repetition_penalty);
    if (times > 0)
      penalty.less = sampling.presence_penalty + sampling.frequency_penalty * static_cast<double>(times);
  }
  return penalties;
}

SampledToken sample_token(std::span<const double> logits, const Sampling& sampling, uint64_t stream,
                          int64_t position, const SamplingContext& context) {
  const size_t token = sampling.changes_logits()
                           ? drawn(adjusted(logits, sampling, context), sampling, stream, position, context)
                           : drawn(logits, sampling, stream, position, context);
  const double all = log_sum_exp(logits, *std::ranges::max_element(logits));
  SampledToken choice{static_cast<int64_t>(token), logits[token] - all, {}};
  if (context.alternatives > 0) choice.alternatives = alternatives_of(logits, context, all);
  return choice;
}

void validate(const Sampling& sampling) {
  base::require_in_range("temperature", sampling.temperature, {0.0, 1e6});
  base::require_in_range("top_k", sampling.top_k, {0, int64_t{1} << 30});
  base::require_in_range("top_p", sampling.top_p, {1e-9, 1.0});
  base::require_in_range("min_p", sampling.min_p, {0.0, 1.0});
  base::require_in_range("repetition_penalty", sampling.repetition_penalty, {1e-3, 1e3});
  base::require_in_range("presence_penalty", sampling.presence_penalty, {-2.0, 2.0});
  base::require_in_range("frequency_penalty", sampling.frequency_penalty, {-2.0, 2.0});
}

}  // namespace sluice::generate
