#include "layers/number_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {
namespace {

void require_figures(const at::Tensor& numbers_RK, const at::Tensor& given_RF, int64_t more) {
  const int64_t figures = given_RF.size(1);
  SLUICE_ASSERT(figures == numbers_RK.size(1) + more,
                base::text(figures, " figures for ", numbers_RK.size(1), " numbers of a row"));
}

// Losses of numbers without targets or figures.
NumberLosses no_losses(const at::Tensor& numbers_RK) {
  const at::Tensor none_RK = at::zeros_like(numbers_RK);
  return {.loss_R = none_RK.sum(1), .gradient_RK = none_RK, .notes_RN = {}};
}

class ClassCrossEntropy final : public NumberLoss {
 public:
  NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& target_R,
                  const at::Tensor& /*given_RF*/) const override {
    const at::Tensor log_RK = at::log_softmax(numbers_RK, 1);
    const at::Tensor target_R1 = target_R.unsqueeze(1);
    at::Tensor gradient_RK = log_RK.exp();
    gradient_RK.scatter_add_(1, target_R1, -at::ones_like(target_R1, gradient_RK.options()));
    return {.loss_R = log_RK.gather(1, target_R1).squeeze(1).neg(),
            .gradient_RK = gradient_RK,
            .notes_RN = numbers_RK.argmax(1).eq(target_R).to(at::kDouble).unsqueeze(1)};
  }
  int64_t notes() const override { return 1; }
};

// softplus(x) − figure·x; its derivative is σ(x) − figure.
class BinaryCrossEntropy final : public NumberLoss {
 public:
  NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& /*target_R*/,
                  const at::Tensor& given_RF) const override {
    if (!given_RF.defined()) return no_losses(numbers_RK);
    require_figures(numbers_RK, given_RF, 0);
    const auto count = static_cast<double>(numbers_RK.size(1));
    // ln(1 + e^x) = max(x, 0) + ln(1 + e^−|x|), without overflow.
    const at::Tensor softplus_RK = numbers_RK.clamp_min(0) + numbers_RK.abs().neg().exp().log1p();
    return {.loss_R = (softplus_RK - given_RF * numbers_RK).mean(1),
            .gradient_RK = (numbers_RK.sigmoid() - given_RF).div_(count),
            .notes_RN = numbers_RK.gt(0).eq(given_RF.gt(0.5)).all(1).to(at::kDouble).unsqueeze(1)};
  }
  int64_t notes() const override { return 1; }
};

class SquaredError final : public NumberLoss {
 public:
  NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& /*target_R*/,
                  const at::Tensor& given_RF) const override {
    if (!given_RF.defined()) return no_losses(numbers_RK);
    require_figures(numbers_RK, given_RF, 0);
    const at::Tensor difference_RK = numbers_RK - given_RF;
    return {.loss_R = difference_RK.square().mean(1),
            .gradient_RK = difference_RK * (2.0 / static_cast<double>(numbers_RK.size(1))),
            .notes_RN = {}};
  }
};

class FoundGradient final : public NumberLoss {
 public:
  NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& /*target_R*/,
                  const at::Tensor& given_RF) const override {
    if (!given_RF.defined()) return no_losses(numbers_RK);
    require_figures(numbers_RK, given_RF, 1);
    const int64_t count = numbers_RK.size(1);
    return {.loss_R = given_RF.select(1, count), .gradient_RK = given_RF.narrow(1, 0, count), .notes_RN = {}};
  }
};

class ClippedValueError final : public NumberLoss {
 public:
  explicit ClippedValueError(double clip) : clip_(clip) {}
  NumberLosses of(const at::Tensor& numbers_RK, const at::Tensor& /*target_R*/,
                  const at::Tensor& given_RF) const override {
    if (!given_RF.defined()) return no_losses(numbers_RK);
    require_figures(numbers_RK, given_RF, 1);
    const at::Tensor value_R = numbers_RK.select(1, 0);
    const at::Tensor return_R = given_RF.select(1, 0), old_R = given_RF.select(1, 1);
    const at::Tensor free_R = value_R - return_R;
    at::Tensor kept_R = free_R;
    // A value within its bounds stays the same to the bit: a sum of differences could take either branch.
    if (clip_ > 0) kept_R = value_R.clamp(old_R - clip_, old_R + clip_) - return_R;
    const at::Tensor larger_R = kept_R.square() > free_R.square();
    return {.loss_R = at::where(larger_R, kept_R, free_R).square().mul_(0.5),
            .gradient_RK = at::where(larger_R, 0.0, free_R).unsqueeze(1),
            .notes_RN = larger_R.to(at::kDouble).unsqueeze(1)};
  }
  int64_t notes() const override { return 1; }

 private:
  double clip_;
};

template <typename Kind>
std::shared_ptr<const NumberLoss> one_of() {
  static const auto loss = std::make_shared<const Kind>();
  return loss;
}

}  // namespace

std::shared_ptr<const NumberLoss> class_cross_entropy() { return one_of<ClassCrossEntropy>(); }
std::shared_ptr<const NumberLoss> binary_cross_entropy() { return one_of<BinaryCrossEntropy>(); }
std::shared_ptr<const NumberLoss> squared_error() { return one_of<SquaredError>(); }
std::shared_ptr<const NumberLoss> found_gradient() { return one_of<FoundGradient>(); }
std::shared_ptr<const NumberLoss> clipped_value_error(double clip) {
  return std::make_shared<const ClippedValueError>(clip);
}

}  // namespace sluice::layers
