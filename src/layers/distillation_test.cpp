// Divergences from a teacher against autograd on their definitions.
#include "layers/distillation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sluice::layers {
namespace {

constexpr int64_t kLearntRows = 9, kVocabulary = 31;

// As in the paper, for autograd.
at::Tensor twin(const Distillation& distillation, const at::Tensor& logits_RV, const at::Tensor& teacher_RV) {
  const at::Tensor q_RV = at::softmax(logits_RV / distillation.temperature, 1);
  const at::Tensor p_RV = at::softmax(teacher_RV / distillation.temperature, 1);
  const auto kl = [](const at::Tensor& of, const at::Tensor& from) {
    return (of * (of.log() - from.log())).sum(1);
  };
  if (distillation.divergence == Divergence::kForwardKl) return kl(p_RV, q_RV);
  if (distillation.divergence == Divergence::kReverseKl) return kl(q_RV, p_RV);
  const at::Tensor m_RV = distillation.beta * p_RV + (1 - distillation.beta) * q_RV;
  return distillation.beta * kl(p_RV, m_RV) + (1 - distillation.beta) * kl(q_RV, m_RV);
}

at::Tensor normal(double scale) {
  return scale * at::randn({kLearntRows, kVocabulary}, at::TensorOptions().dtype(at::kDouble));
}

class DistillationTest : public testing::TestWithParam<Distillation> {};

TEST_P(DistillationTest, LossAndGradientAreAutograds) {
  at::manual_seed(3);
  const at::Tensor logits_RV = normal(2).requires_grad_(), teacher_RV = normal(3);
  const at::Tensor expected_R = twin(GetParam(), logits_RV, teacher_RV);
  const at::Tensor gradient_RV = torch::autograd::grad({expected_R.sum()}, {logits_RV}).front();
  const DistilledRows found = distill(GetParam(), {}, logits_RV.detach().clone(), teacher_RV.clone());
  EXPECT_LT((found.loss_C - expected_R).abs().max().item<double>(), 1e-12);
  EXPECT_LT((found.dlogits_CV - gradient_RV).abs().max().item<double>(), 1e-12);
}

TEST_P(DistillationTest, ATeacherThatAgreesHasNothingToTeach) {
  at::manual_seed(4);
  const at::Tensor logits_RV = normal(2);
  const DistilledRows found = distill(GetParam(), {}, logits_RV.clone(), logits_RV + 7.0);
  EXPECT_LT(found.loss_C.abs().max().item<double>(), 1e-12);
  EXPECT_LT(found.dlogits_CV.abs().max().item<double>(), 1e-12);
}

TEST_P(DistillationTest, CertaintyStaysFinite) {
  // exp(−2000) is no number above 0: its entry has a logarithm all the same.
  const at::Tensor logits_RV = at::zeros({1, 3}, at::kDouble), teacher_RV = at::zeros({1, 3}, at::kDouble);
  logits_RV[0][0] = 2000;
  teacher_RV[0][1] = 2000;
  const DistilledRows found = distill(GetParam(), {}, logits_RV, teacher_RV);
  EXPECT_TRUE(std::isfinite(found.loss_C.item<double>()));
  EXPECT_TRUE(found.dlogits_CV.isfinite().all().item<bool>());
}

TEST_P(DistillationTest, FloatLogitsHaveLossesInDouble) {
  at::manual_seed(5);
  const at::Tensor logits_RV = normal(2), teacher_RV = normal(2);
  const DistilledRows wide = distill(GetParam(), {}, logits_RV.clone(), teacher_RV.clone());
  const DistilledRows narrow = distill(GetParam(), {}, logits_RV.to(at::kFloat), teacher_RV.to(at::kFloat));
  EXPECT_EQ(narrow.loss_C.scalar_type(), at::kDouble);
  EXPECT_EQ(narrow.dlogits_CV.scalar_type(), at::kFloat);
  EXPECT_LT((narrow.loss_C - wide.loss_C).abs().max().item<double>(), 1e-5);
  EXPECT_LT((narrow.dlogits_CV - wide.dlogits_CV).abs().max().item<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Of, DistillationTest,
                         testing::Values(Distillation{Divergence::kForwardKl},
                                         Distillation{Divergence::kReverseKl},
                                         Distillation{Divergence::kJsd, 0.5},
                                         Distillation{Divergence::kJsd, 0.1, 2.0},
                                         Distillation{Divergence::kForwardKl, 0.5, 3.0},
                                         Distillation{Divergence::kReverseKl, 0.5, 0.5}));

}  // namespace
}  // namespace sluice::layers
