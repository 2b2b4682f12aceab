// Preference learning: a loss of better and worse answers, and an advantage for each answer. The gradient
// of −Σ advantage · log p over an answer's tokens is the loss's. Pure functions of figures that every rank
// has.
#pragma once

#include <span>
#include <vector>

#include "config/run_config.h"

namespace sluice::rl {

struct PreferenceLoss {
  double loss = 0;           // the mean over pairs (dpo), or over answers (kto)
  double reward_margin = 0;  // β times better answers' mean gain less worse ones'
  double accuracy = 0;       // share of pairs in the right order, or of answers on their side
  // One for each answer. Their sum over the number of pairs, or of answers, is the loss's gradient.
  std::vector<double> advantages;
};

// `gain`: log(p / p_ref) of whole answers, a better one and a worse one in turn. The loss of a pair is −log
// σ(β·(gain_better − gain_worse)) (Rafailov et al., DPO, 2023, equation 7). REQUIRES: pairs.
PreferenceLoss dpo(std::span<const double> gain, double beta);

// The same answers, each for itself. The loss is λ·(1 − σ(β·(gain − z))) for a better answer and λ·(1 −
// σ(β·(z − gain))) for a worse one (Ethayarajh et al., KTO, 2024, equation 8). Constant z is the divergence
// from the reference, at least 0. The mean of `elsewhere` estimates z: gains of answers behind prompts that
// they do not belong to.
PreferenceLoss kto(std::span<const double> gain, std::span<const double> elsewhere,
                   const config::RlConfig& config);

}  // namespace sluice::rl
