#include "minder/lstm_vae.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace sluice::minder {
namespace {

// at::lstm's result for a sequence with zero initial states: every step's state, and the last one.
std::pair<at::Tensor, at::Tensor> run(const at::Tensor& input_WNI, const std::vector<at::Tensor>& weights,
                                      int64_t hidden) {
  const at::Tensor zero = at::zeros({1, input_WNI.size(1), hidden}, input_WNI.options());
  const std::vector<at::Tensor> state{zero, zero};
  const auto [states, last, cell] = at::lstm(input_WNI, state, weights, /*has_biases=*/true, /*num_layers=*/1,
                                             /*dropout=*/0, /*train=*/true, /*bidirectional=*/false,
                                             /*batch_first=*/false);
  return {states, last.squeeze(0)};
}

}  // namespace

LstmVae::LstmVae(const at::Tensor& windows_NW, const Options& options) : options_(options) {
  at::Generator generator = at::detail::createCPUGenerator(options.seed);
  const auto [hidden, latent] = std::pair(options.hidden, options.latent);
  const auto random = [&](at::IntArrayRef sizes) {
    const double scale = 1 / std::sqrt(static_cast<double>(hidden));
    at::Tensor tensor = at::randn(sizes, generator).mul_(scale);
    tensor.set_requires_grad(true);
    return parameters_.emplace_back(tensor);
  };
  for (auto& [weights, inputs] : {std::pair(&encoder_, int64_t{1}), std::pair(&decoder_, latent)})
    *weights = {random({4 * hidden, inputs}), random({4 * hidden, hidden}), random({4 * hidden}),
                random({4 * hidden})};
  mean_LH_ = random({latent, hidden});
  log_variance_LH_ = random({latent, hidden});
  out_1H_ = random({1, hidden});
  out_bias_1_ = random({1});
  std::vector<at::Tensor> first, second;
  for (const at::Tensor& parameter : parameters_) {
    first.push_back(at::zeros_like(parameter));
    second.push_back(at::zeros_like(parameter));
  }
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
  for (int step = 1; step <= options.steps; ++step) {
    const at::Tensor chosen = at::randint(windows_NW.size(0), {options.batch}, generator, at::kLong);
    const at::Tensor batch_NW = at::index_select(windows_NW, 0, chosen);
    const Latent of = encode(batch_NW);
    const at::Tensor noise = at::randn(of.mean_NL.sizes(), generator);
    const at::Tensor said = decode(of.mean_NL + noise * at::exp(of.log_variance_NL * 0.5));
    const at::Tensor wrong = (said - batch_NW).square().mean();
    const at::Tensor divergence =
        (at::exp(of.log_variance_NL) + of.mean_NL.square() - 1 - of.log_variance_NL).mean() * 0.5;
    (wrong + divergence * options.divergence).backward();
    error_ = wrong.item<double>();
    const at::NoGradGuard no_grad;
    const double rate = options.lr * std::sqrt(1 - std::pow(kBeta2, step)) / (1 - std::pow(kBeta1, step));
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor gradient = parameters_[i].grad();
      first[i].mul_(kBeta1).add_(gradient, 1 - kBeta1);
      second[i].mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
      parameters_[i].addcdiv_(first[i], second[i].sqrt().add_(kEps), -rate);
      parameters_[i].mutable_grad().zero_();
    }
  }
}

LstmVae::Latent LstmVae::encode(const at::Tensor& windows_NW) const {
  const at::Tensor input_WN1 = windows_NW.t().unsqueeze(2).contiguous();
  const at::Tensor last_NH = run(input_WN1, encoder_, options_.hidden).second;
  return {at::matmul(last_NH, mean_LH_.t()), at::matmul(last_NH, log_variance_LH_.t())};
}

at::Tensor LstmVae::decode(const at::Tensor& latent_NL) const {
  const at::Tensor input_WNL =
      latent_NL.unsqueeze(0).expand({options_.window, latent_NL.size(0), options_.latent}).contiguous();
  const at::Tensor states_WNH = run(input_WNL, decoder_, options_.hidden).first;
  return (at::matmul(states_WNH, out_1H_.t()) + out_bias_1_).squeeze(2).t();
}

at::Tensor LstmVae::denoised(const at::Tensor& windows_NW) const {
  const at::NoGradGuard no_grad;
  return decode(encode(windows_NW).mean_NL);
}

}  // namespace sluice::minder
