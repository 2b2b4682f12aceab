// Losses of reinforcement and preference learning, whose gradient at the logits is a figure of the row times
// that of the cross-entropy. What they need of each row was found out before the step, from whole responses.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>

#include "layers/loss.h"

namespace sluice::layers {

// What the loss is given of a row. Log-probabilities are of the row's target.
struct PolicyRow {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double advantage = 0;
  double weight = 1;         // of the row in the loss
  double old = kNone;        // log-probability before the updates of a rollout; kNone: this step's own
  double reference = kNone;  // of the policy that this one stays near; kNone: nothing keeps it
  double sampled = kNone;    // as the rollout knew it; kNone: the row is from no rollout
  static constexpr int64_t kFigures = 5;
  std::array<double, kFigures> figures() const { return {advantage, weight, old, reference, sampled}; }
};

struct PolicyLossOptions {
  // The ratio's range, 1 − low to 1 + high, beyond which an advantage pulls no further (Schulman et al., PPO,
  // 2017, equation 7; apart: Yu et al., DAPO, 2025, equation 8).
  double clip_low = 0.2;
  double clip_high = 0.2;
  // Where the advantage is negative the ratio counts up to this (Ye et al., dual-clip PPO, 2020, equation 5);
  // 0: without bound.
  double dual_clip = 0;
  double kl = 0;  // factor of the divergence from the reference, as Schulman's k3 estimates it
};

// What the loss sums beside itself, over rows with their weights' share left out.
enum class PolicyNote : uint8_t {
  kClipped,             // rows whose advantage pulls no more
  kReferenceKl,         // k3 from the reference
  kRolloutLogprobDiff,  // |log-probability − the rollout's|
};
inline constexpr int64_t kPolicyNotes = 3;

// weight · (−min(r·A, clip(r)·A) + kl · k3), r = exp(log p − old), k3 = exp(d) − d − 1, d = reference − log
// p. Log-ratios are cut at ±20, as verl does, so that no exponential overflows.
std::shared_ptr<const Loss> policy_loss(const PolicyLossOptions& options);

}  // namespace sluice::layers
