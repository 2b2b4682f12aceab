// Rotary inverse frequencies under the scalings of Hugging Face's modeling_rope_utils.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::model {
namespace {

// θ^(−2i/d): the angle by which pair i rotates at each position (Su et al., RoFormer, eq. 15).
std::vector<double> plain_frequencies(double theta, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim; i += 2) {
    frequencies.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return frequencies;
}

// Llama 3.1: pairs with fewer than low_freq_factor rotations within the original context are slowed by
// `factor`. Above high_freq_factor pairs are unchanged; between, the slowed frequency's share falls linearly.
double llama3_frequency(const Rope& rope, double frequency) {
  const double turns =
      static_cast<double>(rope.original_max_position_embeddings) * frequency / (2 * std::numbers::pi);
  const double kept_share =
      std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
  return (1 - kept_share) * frequency / rope.factor + kept_share * frequency;
}

// The (fractional) pair index i with `turns` rotations within the original context. Solves L·θ^(−2i/d) =
// 2π·turns for i (Peng et al., YaRN, section 3.2).
double yarn_pair_of_turns(const Rope& rope, int64_t head_dim, double turns) {
  const double ratio =
      static_cast<double>(rope.original_max_position_embeddings) / (turns * 2 * std::numbers::pi);
  return static_cast<double>(head_dim) * std::log(ratio) / (2 * std::log(rope.theta));
}

// YaRN: a ramp over the pair index, between the pairs with beta_fast and beta_slow rotations.
void scale_yarn(const Rope& rope, int64_t head_dim, std::vector<double>& frequencies) {
  double low = yarn_pair_of_turns(rope, head_dim, rope.beta_fast);
  double high = yarn_pair_of_turns(rope, head_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  // Transformers widens an empty ramp by the same amount.
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed_share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= slowed_share / rope.factor + (1 - slowed_share);
  }
}

double yarn_attention_scale(const Rope& rope) {
  if (rope.attention_factor > 0) return rope.attention_factor;
  return rope.factor <= 1 ? 1.0 : 0.1 * std::log(rope.factor) + 1.0;
}

}  // namespace

RopeTable rope_table(const Rope& rope, int64_t head_dim, int64_t positions) {
  RopeTable table{.inverse_frequencies = plain_frequencies(rope.theta, head_dim)};
  std::vector<double>& frequencies = table.inverse_frequencies;
  switch (rope.scaling) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::kProportional: {
      const auto turned = static_cast<size_t>(rope.proportion * static_cast<double>(head_dim) / 2);
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] *= i < turned ? 1 / rope.factor : 0;
      break;
    }
    case RopeScaling::kLlama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(rope, frequency);
      break;
    case RopeScaling::kYarn:
      scale_yarn(rope, head_dim, frequencies);
      table.attention_scale = yarn_attention_scale(rope);
      break;
    case RopeScaling::kLongRope: {
      const bool longer = positions > rope.original_max_position_embeddings;
      const std::vector<double>& factors = longer ? rope.long_factors : rope.short_factors;
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      table.attention_scale = rope.attention_factor;
      break;
    }
  }
  return table;
}

}  // namespace sluice::model
