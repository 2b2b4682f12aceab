// Losses of rows beside their formulas, differentiated by autograd.
#include "layers/loss.h"

#include "layers/test_gradients.h"
#include "ops/cross_entropy.h"

namespace sluice::layers {
namespace {

constexpr int64_t kLossRows = 4, kLossColumns = 7;

// The gradient of the logits that a head computes from a loss's factors.
at::Tensor logit_gradient(const Loss& loss, const at::Tensor& logits, const at::Tensor& targets,
                          at::Tensor& reported) {
  const at::Tensor own = logits.detach().clone();
  const at::Tensor shard = ops::row_statistics(own, targets, 0), whole = ops::combine(shard.unsqueeze(0));
  const RowLosses losses = loss.of(whole, {});
  reported = losses.reported_R;
  const at::Tensor gradient = ops::cross_entropy_gradient(own, shard, whole, targets, 0, at::kDouble);
  ops::scale_cross_entropy_gradient(gradient, losses.softmax_R, losses.target_R, targets, 0);
  return gradient;
}

TEST(Loss, CrossEntropyAndItsSquaredLogarithmAreTheirFormulas) {
  const at::Tensor logits = (3 * waves({kLossRows, kLossColumns}, 1)).detach().requires_grad_();
  const at::Tensor targets = at::tensor({0, 6, 3, 3}, at::kLong);
  for (const double z : {0.0, 1e-4, 0.5}) {
    const at::Tensor entropy = -logits.log_softmax(1).gather(1, targets.unsqueeze(1)).squeeze(1);
    const at::Tensor sum = entropy.sum() + z * logits.logsumexp(at::IntArrayRef{1}).square().sum();
    const at::Tensor expected = gradients_of(sum, at::ones({}, at::kDouble), {logits}).front();
    at::Tensor reported;
    expect_near(logit_gradient(*with_z_loss(z), logits, targets, reported), expected,
                "z " + std::to_string(z));
    expect_near(reported, entropy, "the report is the cross-entropy, so that runs compare");
  }
  EXPECT_EQ(with_z_loss(0), cross_entropy());
  EXPECT_EQ(cross_entropy()->notes(), 0);
}

// Logits of thousands, as a model has that is about to diverge.
TEST(Loss, LargeLogitsGiveNoInfinity) {
  const at::Tensor logits = waves({kLossRows, kLossColumns}, 1) * 5000;
  at::Tensor reported;
  const at::Tensor gradient =
      logit_gradient(*with_z_loss(1e-4), logits, at::tensor({0, 1, 2, 3}, at::kLong), reported);
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  EXPECT_TRUE(reported.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace sluice::layers
