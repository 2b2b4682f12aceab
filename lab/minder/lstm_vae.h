// A variational autoencoder of windows of one metric, as Minder (Deng et al., 2024) denoises them: an LSTM
// reads a window, its last state gives mean and deviation of a latent vector, and a second LSTM, which is
// given that vector at every step, says the window again. What it has learnt of quiet windows it says without
// noise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::minder {

class LstmVae {
 public:
  struct Options {
    int64_t window = 8;
    int64_t hidden = 4;  // the paper's figures
    int64_t latent = 8;
    int steps = 300;  // of Adam, in batches
    int64_t batch = 256;
    double lr = 2e-2;
    double divergence = 1e-3;  // weight of the latent vectors' divergence from a normal distribution
    uint64_t seed = 1;
  };
  // Learns `windows_NW` (float, values of about [0, 1]).
  LstmVae(const at::Tensor& windows_NW, const Options& options);

  // The windows as it says them, from the means of their latent vectors.
  at::Tensor denoised(const at::Tensor& windows_NW) const;
  // Mean squared error of what it learnt from, at the end.
  double error() const { return error_; }

 private:
  struct Latent {
    at::Tensor mean_NL;
    at::Tensor log_variance_NL;
  };
  at::Tensor parameter(at::IntArrayRef sizes, double scale);
  Latent encode(const at::Tensor& windows_NW) const;
  at::Tensor decode(const at::Tensor& latent_NL) const;

  Options options_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> encoder_, decoder_;  // weights and biases as at::lstm takes them
  at::Tensor mean_LH_, log_variance_LH_, out_1H_, out_bias_1_;
  double error_ = 0;
};

}  // namespace sluice::minder
