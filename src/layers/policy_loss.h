// Losses of reinforcement and preference learning. Their gradient at the logits is a factor of the row times
// that of the cross-entropy. A row's figures are computed before the step, from whole responses.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>

#include "layers/loss.h"

namespace sluice::layers {

// Figures of a row for the loss. Log-probabilities are those of the row's target.
struct PolicyRow {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double advantage = 0;
  double weight = 1;         // weight of the row in the loss
  double old = kNone;        // log-probability before the updates of a rollout; kNone: this step's own
  double reference = kNone;  // log-probability by the reference policy; kNone: no reference
  double sampled = kNone;    // log-probability that the rollout reported; kNone: the row is from no rollout
  static constexpr int64_t kFigures = 5;
  std::array<double, kFigures> figures() const { return {advantage, weight, old, reference, sampled}; }
};

struct PolicyLossOptions {
  // Clipping range of the ratio, 1 − low to 1 + high, beyond which an advantage has no gradient (Schulman et
  // al., PPO, 2017, equation 7; two bounds: Yu et al., DAPO, 2025, equation 8).
  double clip_low = 0.2;
  double clip_high = 0.2;
  // Upper bound of the ratio for negative advantages (Ye et al., dual-clip PPO, 2020, equation 5); 0: no
  // bound.
  double dual_clip = 0;
  double kl = 0;  // factor of the KL divergence from the reference, by Schulman's estimator k3
};

// Further figures that the loss sums over rows, without the rows' weights.
enum class PolicyNote : uint8_t {
  kClipped,             // rows whose advantage is clipped and has no gradient
  kReferenceKl,         // k3 from the reference policy
  kRolloutLogprobDiff,  // |log-probability − the rollout's|
};
inline constexpr int64_t kPolicyNotes = 3;

// weight · (−min(r·A, clip(r)·A) + kl · k3), r = exp(log p − old), k3 = exp(d) − d − 1, d = reference − log
// p. Log-ratios are cut at ±20, as verl does, so that no exponential overflows.
std::shared_ptr<const Loss> policy_loss(const PolicyLossOptions& options);

}  // namespace sluice::layers
