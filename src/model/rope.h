// Rotary positions.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::model {

// How rotary frequencies are stretched for longer contexts. The names are Hugging Face's `rope_type`s.
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn, kLongRope, kProportional };

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;                     // llama3
  double high_freq_factor = 4.0;                    // llama3
  int64_t original_max_position_embeddings = 8192;  // llama3, yarn, longrope
  double beta_fast = 32.0;                          // yarn
  double beta_slow = 1.0;                           // yarn
  bool truncate = true;                             // yarn: the ramp begins and ends at whole pairs
  double mscale_all_dim = 0.0;                      // yarn, latent attention: scales scores; 0: unchanged
  double attention_factor = 0.0;                    // yarn, longrope; 0 with yarn: 0.1·ln(factor) + 1
  double proportion = 1.0;                          // proportional: fraction of pairs that rotate, the first
  // longrope, by pair: divisors of frequencies, up to the original context and beyond it.
  std::vector<double> short_factors, long_factors;
  bool operator==(const Rope&) const = default;
};

// Rotary inverse frequencies of head_dim/2 pairs, and the factor on cos and sin (1 except for yarn and
// longrope), for sequences of at most `positions` tokens. longrope's depend on whether `positions` exceeds
// the original context. REQUIRES: a valid rope. Formulas as in Hugging Face transformers'
// modeling_rope_utils.
struct RopeTable {
  std::vector<double> inverse_frequencies;
  double attention_scale = 1.0;
};
RopeTable rope_table(const Rope& rope, int64_t head_dim, int64_t positions);

}  // namespace sluice::model
