#include "layers/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include "ops/cross_entropy.h"

namespace sluice::layers {
namespace {

class CrossEntropy final : public Loss {
 public:
  RowLosses of(const at::Tensor& whole_R3, const at::Tensor& /*given_RF*/) const override {
    return {.reported_R = ops::token_losses(whole_R3)};
  }
};

// d(log Z)/d(logits) = softmax(logits), so d(z·log²Z)/d(logits) = 2z·log Z · softmax(logits).
class CrossEntropyAndZ final : public Loss {
 public:
  explicit CrossEntropyAndZ(double z) : z_(z) {}
  RowLosses of(const at::Tensor& whole_R3, const at::Tensor& /*given_RF*/) const override {
    const at::Tensor log_z_R = whole_R3.select(1, 0) + whole_R3.select(1, 1).log();
    return {.reported_R = ops::token_losses(whole_R3), .softmax_R = log_z_R.mul_(2 * z_).add_(1)};
  }

 private:
  double z_;
};

class WeightedCrossEntropy final : public Loss {
 public:
  explicit WeightedCrossEntropy(double weight) : weight_(weight) {}
  RowLosses of(const at::Tensor& whole_R3, const at::Tensor& /*given_RF*/) const override {
    const at::Tensor weight_R = at::full({whole_R3.size(0)}, weight_, whole_R3.options());
    return {.reported_R = ops::token_losses(whole_R3), .softmax_R = weight_R, .target_R = weight_R};
  }

 private:
  double weight_;
};

}  // namespace

std::shared_ptr<const Loss> weighted_cross_entropy(double weight) {
  return std::make_shared<const WeightedCrossEntropy>(weight);
}

std::shared_ptr<const Loss> cross_entropy() {
  static const auto loss = std::make_shared<const CrossEntropy>();
  return loss;
}

std::shared_ptr<const Loss> with_z_loss(double z) {
  if (z == 0) return cross_entropy();
  return std::make_shared<const CrossEntropyAndZ>(z);
}

}  // namespace sluice::layers
