// A head under one or several teachers beside the same written out and differentiated by autograd: the
// divergence over the rows of the vocabulary that both models have, mixed with the targets' own loss.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "layers/head.h"
#include "model/layer.h"
#include "model/layer_of.h"
#include "model/test_outline.h"

namespace sluice::layers {
namespace {

constexpr int64_t kDistilledRows = 150, kTeacherHidden = 40;  // more rows than a chunk has
constexpr double kDivisor = 1.5;

struct Written {
  at::Tensor loss, dx, doutput;
};

at::Tensor divergence_of(const Distillation& distillation, const at::Tensor& logits,
                         const at::Tensor& teacher) {
  const at::Tensor log_q = at::log_softmax(logits / distillation.temperature, 1);
  const at::Tensor log_p = at::log_softmax(teacher / distillation.temperature, 1);
  const at::Tensor p = log_p.exp(), q = log_q.exp();
  if (distillation.divergence == Divergence::kForwardKl) return (p * (log_p - log_q)).sum();
  return (q * (log_q - log_p)).sum();
}

class DistilledHead : public testing::TestWithParam<Distillation> {
 protected:
  void SetUp() override {
    at::manual_seed(6);
    const auto random = [](at::IntArrayRef sizes) { return at::randn(sizes, at::dtype(at::kDouble)); };
    x_ = random({kDistilledRows, outline_.hidden}).requires_grad_();
    norm_ = random({outline_.hidden}).requires_grad_();
    output_ = random({outline_.vocab, outline_.hidden}).requires_grad_();
    for (const int64_t hidden : {kTeacherHidden, kTeacherHidden + 9, kTeacherHidden / 2}) {
      teachers_.push_back(
          {random({kDistilledRows, hidden}) / 4, random({outline_.vocab, hidden}), /*cap=*/0});
    }
    for (int64_t row = 0; row < kDistilledRows; ++row)
      targets_.push_back(row % 5 == 0 ? -1 : row * 7 % outline_.vocab);
  }

  Written written_out() const {
    const Distillation& distillation = GetParam();
    const at::Tensor place = at::tensor(rows_with_targets(), at::kLong);
    const at::Tensor rows = x_.index_select(0, place);
    const at::Tensor y =
        rows * (rows.square().mean(1, /*keepdim=*/true) + outline_.norm_eps).rsqrt() * norm_ / kDivisor;
    const at::Tensor logits = at::matmul(y, output_.t());
    at::Tensor divergences = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < distillation.teachers.size(); ++i) {
      const auto& [weight, entries] = distillation.teachers[i];
      const at::Tensor taught =
          at::matmul(teachers_[i].row_MH.index_select(0, place), teachers_[i].output_VH.t());
      const int64_t common = entries == 0 ? outline_.vocab : entries;
      divergences = divergences + weight * divergence_of(distillation, logits.narrow(1, 0, common),
                                                         taught.narrow(1, 0, common));
    }
    std::vector<int64_t> next;
    for (const int64_t target : targets_) {
      if (target >= 0) next.push_back(target);
    }
    const at::Tensor own =
        at::cross_entropy_loss(logits, at::tensor(next, at::kLong), {}, at::Reduction::Sum);
    const at::Tensor loss = distillation.alpha * divergences + (1 - distillation.alpha) * own;
    const auto gradients = torch::autograd::grad({loss}, {x_, output_});
    return {loss.detach(), gradients[0], gradients[1]};
  }

  std::vector<int64_t> rows_with_targets() const {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < kDistilledRows; ++row) {
      if (targets_[static_cast<size_t>(row)] >= 0) rows.push_back(row);
    }
    return rows;
  }

  const model::Outline outline_ = model::outline_of_odd_sizes();
  at::Tensor x_, norm_, output_;
  std::vector<HeadRows> teachers_;
  std::vector<int64_t> targets_;
};

TEST_P(DistilledHead, LossAndGradientsAreAutograds) {
  const Written expected = written_out();
  const model::Head head = model::head_of(outline_);
  LayerContext context = layer_context(outline_, {}, 16, at::dtype(at::kDouble));
  context.distillation = GetParam();
  context.temperature = kDivisor;
  context.logits_chunk_bytes = 1;  // as few rows as a chunk may have
  const HeadParameters weights{.kind = &head,
                               .final_norm_H = norm_.detach(),
                               .output_VH = output_.detach(),
                               .vocabulary = {0, outline_.vocab}};
  const HeadParameters gradients{
      .kind = &head, .final_norm_H = at::zeros_like(norm_), .output_VH = at::zeros_like(output_)};
  Targets own = targets(targets_, {}, at::kCPU);
  for (size_t i = 0; i < GetParam().teachers.size(); ++i)
    own.teachers.push_back({teachers_[i].row_MH.index_select(0, own.row_M), teachers_[i].output_VH});
  const HeadResult found = head_forward_backward(context, weights, x_.detach(), own, gradients);
  EXPECT_NEAR(found.sums[0].item<double>(), expected.loss.item<double>(), 1e-10);
  EXPECT_LT((found.dx_SH - expected.dx).abs().max().item<double>(), 1e-11);
  EXPECT_LT((gradients.output_VH - expected.doutput).abs().max().item<double>(), 1e-11);
}

INSTANTIATE_TEST_SUITE_P(
    Of, DistilledHead,
    testing::Values(Distillation{}, Distillation{.temperature = 2, .alpha = 0.3},
                    Distillation{.divergence = Divergence::kReverseKl, .alpha = 0.0},
                    Distillation{.divergence = Divergence::kReverseKl, .teachers = {{.entries = 50}}},
                    Distillation{.temperature = 0.5, .alpha = 0.75, .teachers = {{.entries = 7}}},
                    Distillation{.teachers = {{0.25}, {0.75}}},
                    Distillation{.divergence = Divergence::kReverseKl,
                                 .temperature = 2,
                                 .alpha = 0.6,
                                 .teachers = {{0.5}, {0.2, 50}, {0.3, 7}}}));

}  // namespace
}  // namespace sluice::layers
