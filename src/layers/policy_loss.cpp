#include "layers/policy_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "base/error.h"
#include "ops/cross_entropy.h"

namespace sluice::layers {
namespace {

constexpr double kMostLogRatio = 20;

at::Tensor log_ratio(const at::Tensor& above_R, const at::Tensor& below_R) {
  return (above_R - below_R).clamp_(-kMostLogRatio, kMostLogRatio);
}

class PolicyLoss final : public Loss {
 public:
  explicit PolicyLoss(const PolicyLossOptions& options) : options_(options) {}

  RowLosses of(const at::Tensor& whole_R3, const at::Tensor& given_RF) const override {
    SLUICE_ASSERT(given_RF.defined(), "a policy's rows come with what is known of them");
    const auto given = [&](int64_t column) { return given_RF.select(1, column); };
    const at::Tensor advantage_R = given(0);
    const at::Tensor weight_R = given(1);
    const at::Tensor log_p_R = ops::token_losses(whole_R3).neg();
    const at::Tensor old_R = at::where(given(2).isnan(), log_p_R, given(2));
    const at::Tensor reference_R = at::where(given(3).isnan(), log_p_R, given(3));
    const at::Tensor gap_R = at::where(given(4).isnan(), 0.0, (log_p_R - given(4)).abs());

    const at::Tensor ratio_R = at::exp(log_ratio(log_p_R, old_R));
    const at::Tensor free_R = ratio_R * advantage_R;
    const at::Tensor cut_R = ratio_R.clamp(1 - options_.clip_low, 1 + options_.clip_high) * advantage_R;
    at::Tensor objective_R = at::minimum(free_R, cut_R);
    at::Tensor clipped_R = cut_R < free_R;
    if (options_.dual_clip > 0) {
      const at::Tensor floor_R = advantage_R * options_.dual_clip;
      const at::Tensor below_R = (advantage_R < 0) & (objective_R < floor_R);
      objective_R = at::where(below_R, floor_R, objective_R);
      clipped_R = clipped_R | below_R;
    }
    const at::Tensor away_R = log_ratio(reference_R, log_p_R);
    const at::Tensor away_ratio_R = at::exp(away_R);
    const at::Tensor divergence_R = away_ratio_R - away_R - 1;

    // Derivatives by log p: r' = r, k3' = 1 − exp(d). A row's gradient is that of −log p times factor_R.
    const at::Tensor pull_R = at::where(clipped_R, 0.0, free_R);
    const at::Tensor factor_R = weight_R * (pull_R + options_.kl * (away_ratio_R - 1));
    return {.reported_R = weight_R * (options_.kl * divergence_R - objective_R),
            .softmax_R = factor_R,
            .target_R = factor_R,
            .notes_RK = at::stack({clipped_R.to(at::kDouble), divergence_R, gap_R}, 1)};
  }
  int64_t notes() const override { return kPolicyNotes; }

 private:
  PolicyLossOptions options_;
};

}  // namespace

std::shared_ptr<const Loss> policy_loss(const PolicyLossOptions& options) {
  return std::make_shared<const PolicyLoss>(options);
}

}  // namespace sluice::layers
