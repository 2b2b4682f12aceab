// What preference learning makes of answers that are better and worse: a loss, and of each answer an
// advantage, such that the gradient of −Σ advantage · log p over its tokens is the loss's. Pure functions of
// figures that every rank has.
#pragma once

#include <span>
#include <vector>

#include "config/run_config.h"

namespace sluice::rl {

struct PreferenceLoss {
  double loss = 0;           // the mean over pairs (dpo), or over answers (kto)
  double reward_margin = 0;  // β times the gain of better answers over that of worse ones, in the mean
  double accuracy = 0;       // of pairs: those the right way round; of answers: those on their side
  // Of each answer, so that their sum over as many pairs, or answers, is the loss's gradient.
  std::vector<double> advantages;
};

// `gain`: log(p / p_ref) of whole answers, a better one and a worse one in turn. The loss of a pair is
// −log σ(β·(gain_better − gain_worse)) (Rafailov et al., DPO, 2023, equation 7). REQUIRES: pairs.
PreferenceLoss dpo(std::span<const double> gain, double beta);

// The same answers, each for itself: its loss is λ·(1 − σ(β·(gain − z))) of a better, λ·(1 − σ(β·(z − gain)))
// of a worse one, z the divergence from the reference or 0 where it would be negative, a constant
// (Ethayarajh et al., KTO, 2024, equation 8). `elsewhere`: gains of answers behind prompts that they do not
// belong to, whose mean estimates z.
PreferenceLoss kto(std::span<const double> gain, std::span<const double> elsewhere,
                   const config::RlConfig& config);

}  // namespace sluice::rl
