// Activations of MLPs beside their formulas, differentiated by autograd.
#include "layers/gated.h"

#include "layers/test_gradients.h"

namespace sluice::layers {
namespace {

using model::Activation;

at::Tensor formula(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kSilu: return x * x.sigmoid();
    case Activation::kGelu: return x * 0.5 * (1 + (x / std::sqrt(2.0)).erf());
    case Activation::kGeluTanh:
      return x * 0.5 * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh());
    case Activation::kSquaredRelu: return x.clamp_min(0).square();
    case Activation::kTanh: return x.tanh();
    case Activation::kClampedSilu:
    case Activation::kXielu: break;
  }
  return {};
}

// Some gates and ups lie beyond the limit on either side.
at::Tensor clamped(const model::Gate& gate, const at::Tensor& g, const at::Tensor& u) {
  const at::Tensor below = g.clamp_max(gate.limit), between = u.clamp(-gate.limit, gate.limit);
  return below * (gate.slope * below).sigmoid() * (between + 1);
}

void expect_formula(const model::Gate& gate) {
  const int64_t width = gate.gated ? 8 : 4;
  const at::Tensor x = (3 * waves({5, width}, 1)).detach().requires_grad_(), da = waves({5, 4}, 2);
  const at::Tensor g = x.narrow(1, 0, 4);
  const at::Tensor a = !gate.gated ? formula(gate.activation, x)
                       : gate.activation == Activation::kClampedSilu
                           ? clamped(gate, g, x.narrow(1, 4, 4))
                           : formula(gate.activation, g) * x.narrow(1, 4, 4);
  const at::Tensor expected = gradients_of(a, da, {x}).front();
  const at::NoGradGuard none;
  const at::Tensor own = x.clone();
  expect_near(activated(gate, own), a, "forward", 1e-11);
  expect_near(own, x, "the forward leaves its input");
  expect_near(activated_backward(gate, da, own), a, "the forward's result again", 1e-11);
  expect_near(own, expected, "the input becomes its gradient", 1e-11);
}

TEST(Gated, ActivationsAndGradientsAreTheirFormulas) {
  for (const auto activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                Activation::kSquaredRelu, Activation::kTanh}) {
    for (const bool gated : {true, false}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(activation) << (gated ? " gated" : ""));
      expect_formula({.activation = activation, .gated = gated});
    }
  }
  expect_formula({.activation = Activation::kClampedSilu, .slope = 1.702, .limit = 2});
}

TEST(Gated, ActivationsAloneAreTheSame) {
  for (const auto activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                Activation::kSquaredRelu, Activation::kTanh}) {
    const at::Tensor x = waves({7}, 1).requires_grad_(), dy = waves({7}, 2);
    const at::Tensor y = formula(activation, x), expected = gradients_of(y, dy, {x}).front();
    const at::NoGradGuard none;
    expect_near(act(activation, x), y, "", 1e-11);
    expect_near(act_backward(activation, dy, x), expected, "", 1e-11);
  }
}

}  // namespace
}  // namespace sluice::layers
