// Advantages of tokens over what a critic expects. Pure functions of figures that every rank has.
#pragma once

#include <span>
#include <vector>

namespace sluice::rl {

struct TokenAdvantages {
  std::vector<double> advantages;
  std::vector<double> returns;  // the critic's targets: advantage plus value
};

// Generalised advantage estimation (Schulman et al., 2016, equation 16) of a response that ends with its last
// token: δ_t = r_t + γ V_{t+1} − V_t, A_t = Σ (γλ)^k δ_{t+k}. `values`: V before each token. REQUIRES: as many
// rewards as values.
TokenAdvantages generalised_advantages(std::span<const double> rewards, std::span<const double> values,
                                       double gamma, double lambda);

// The rewards of a response's tokens, as in TRL's and verl's PPO. Each token gets −kl · (log p − log p_ref),
// or 0 without a reference; the last one also gets the response's reward.
std::vector<double> token_rewards(double reward, std::span<const double> old,
                                  std::span<const double> reference, size_t tokens, double kl);

// Shifts and scales all numbers to mean 0 and variance 1 (that of a sample), as they lie in several lists; a
// single number, or numbers that are all the same, become 0.
void whiten(std::span<std::vector<double>* const> lists);

}  // namespace sluice::rl
