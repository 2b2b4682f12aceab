// The policy loss against autograd on the same formulas, and against what each part of it is for.
#include "layers/policy_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

#include "ops/cross_entropy.h"

namespace sluice::layers {
namespace {

struct Rows {
  at::Tensor logits_RV, target_R, given_RF;
};

Rows random_rows(int64_t rows, int64_t vocabulary, bool known) {
  at::manual_seed(11);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  Rows made{at::randn({rows, vocabulary}, options), at::randint(vocabulary, {rows}, at::kLong), {}};
  const at::Tensor log_p_R =
      at::log_softmax(made.logits_RV, 1).gather(1, made.target_R.unsqueeze(1)).squeeze(1);
  const at::Tensor none_R = at::full({rows}, PolicyRow::kNone, options);
  // Ratios from far below to far above the clip.
  const at::Tensor old_R = known ? log_p_R + at::randn({rows}, options) : none_R;
  const at::Tensor reference_R = known ? log_p_R + at::randn({rows}, options) : none_R;
  const at::Tensor sampled_R = known ? log_p_R + 0.25 : none_R;
  made.given_RF = at::stack(
      {at::randn({rows}, options), at::rand({rows}, options) + 0.5, old_R, reference_R, sampled_R}, 1);
  return made;
}

// The loss as its docstring has it, for autograd.
at::Tensor twin(const Rows& rows, const at::Tensor& logits_RV, const PolicyLossOptions& options) {
  const at::Tensor log_p_R = at::log_softmax(logits_RV, 1).gather(1, rows.target_R.unsqueeze(1)).squeeze(1);
  const auto given = [&](int64_t column) { return rows.given_RF.select(1, column); };
  const at::Tensor old_R = at::where(given(2).isnan(), log_p_R.detach(), given(2));
  const at::Tensor reference_R = at::where(given(3).isnan(), log_p_R.detach(), given(3));
  const at::Tensor ratio_R = (log_p_R - old_R).exp();
  const at::Tensor advantage_R = given(0);
  at::Tensor objective_R = at::minimum(
      ratio_R * advantage_R, ratio_R.clamp(1 - options.clip_low, 1 + options.clip_high) * advantage_R);
  if (options.dual_clip > 0) {
    objective_R =
        at::where(advantage_R < 0, at::maximum(objective_R, advantage_R * options.dual_clip), objective_R);
  }
  const at::Tensor away_R = reference_R - log_p_R;
  return (given(1) * (options.kl * (away_R.exp() - away_R - 1) - objective_R)).sum();
}

struct Found {
  double loss = 0;
  at::Tensor dlogits_RV;
  at::Tensor notes_K;
};

Found found(const Rows& rows, const PolicyLossOptions& options) {
  const auto loss = policy_loss(options);
  const at::Tensor logits_RV = rows.logits_RV.clone();  // overwritten with the gradient
  const at::Tensor shard_R3 = ops::row_statistics(logits_RV, rows.target_R, 0);
  const at::Tensor whole_R3 = ops::combine(shard_R3.unsqueeze(0));
  const RowLosses losses = loss->of(whole_R3, rows.given_RF);
  EXPECT_EQ(losses.notes_RK.size(1), loss->notes());
  const at::Tensor dlogits_RV =
      ops::cross_entropy_gradient(logits_RV, shard_R3, whole_R3, rows.target_R, 0, at::kDouble);
  ops::scale_cross_entropy_gradient(dlogits_RV, losses.softmax_R, losses.target_R, rows.target_R, 0);
  return {losses.reported_R.sum().item<double>(), dlogits_RV, losses.notes_RK.sum(0)};
}

class PolicyLossTest : public ::testing::TestWithParam<PolicyLossOptions> {};

TEST_P(PolicyLossTest, IsAutogradsOfItsFormula) {
  for (const bool known : {true, false}) {
    const Rows rows = random_rows(200, 17, known);
    const at::Tensor logits_RV = rows.logits_RV.clone().requires_grad_();
    const at::Tensor expected = twin(rows, logits_RV, GetParam());
    const at::Tensor dlogits_RV = torch::autograd::grad({expected}, {logits_RV}).front();
    const Found actual = found(rows, GetParam());
    EXPECT_NEAR(actual.loss, expected.item<double>(), 1e-10);
    EXPECT_LT((actual.dlogits_RV - dlogits_RV).abs().max().item<double>(), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Options, PolicyLossTest,
                         ::testing::Values(PolicyLossOptions{}, PolicyLossOptions{.clip_high = 0.28},
                                           PolicyLossOptions{.dual_clip = 1.5}, PolicyLossOptions{.kl = 0.7},
                                           PolicyLossOptions{
                                               .clip_low = 0, .clip_high = 0, .dual_clip = 3, .kl = 0.1}));

TEST(PolicyLossTest, OnPolicyIsThePolicyGradient) {
  Rows rows = random_rows(50, 9, /*known=*/false);
  const Found actual = found(rows, {.dual_clip = 2});
  const at::Tensor factor_R = rows.given_RF.select(1, 0) * rows.given_RF.select(1, 1);
  const at::Tensor expected_RV =
      (at::softmax(rows.logits_RV, 1) - at::one_hot(rows.target_R, 9)) * factor_R.unsqueeze(1);
  EXPECT_LT((actual.dlogits_RV - expected_RV).abs().max().item<double>(), 1e-13);
  for (const PolicyNote note :
       {PolicyNote::kClipped, PolicyNote::kReferenceKl, PolicyNote::kRolloutLogprobDiff})
    EXPECT_EQ(actual.notes_K[static_cast<int64_t>(note)].item<double>(), 0);
}

TEST(PolicyLossTest, NotesCountTheGapOfARollout) {
  const Rows rows = random_rows(50, 9, /*known=*/true);
  const Found actual = found(rows, {});
  EXPECT_NEAR(actual.notes_K[static_cast<int64_t>(PolicyNote::kRolloutLogprobDiff)].item<double>(), 50 * 0.25,
              1e-10);
  EXPECT_GT(actual.notes_K[static_cast<int64_t>(PolicyNote::kClipped)].item<double>(), 0);
}

TEST(PolicyLossTest, ExtremeRatiosStayNumbers) {
  Rows rows = random_rows(4, 9, /*known=*/true);
  rows.given_RF.select(1, 2).fill_(-1e4);
  rows.given_RF.select(1, 3).fill_(1e4);
  const Found actual = found(rows, {.kl = 1});
  EXPECT_TRUE(std::isfinite(actual.loss));
  EXPECT_TRUE(actual.dlogits_RV.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace sluice::layers
