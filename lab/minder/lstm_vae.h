// A variational autoencoder for windows of one metric, as in Minder (Deng et al., 2024), which removes noise.
// An LSTM reads a window; its last state gives mean and deviation of a latent vector. A second LSTM gets that
// vector at every step and reconstructs the window. Trained on quiet windows, the autoencoder reconstructs
// them without noise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sluice::minder {

class LstmVae {
 public:
  struct Options {
    int64_t window = 8;
    int64_t hidden = 4;  // as in the paper
    int64_t latent = 8;
    int steps = 300;  // Adam steps, on batches
    int64_t batch = 256;
    double lr = 2e-2;
    double divergence = 1e-3;  // weight of the latent vectors' KL divergence from a normal distribution
    uint64_t seed = 1;
  };
  // Trains on `windows_NW` (float, values of about [0, 1]).
  LstmVae(const at::Tensor& windows_NW, const Options& options);

  // The reconstructed windows, from the means of their latent vectors.
  at::Tensor denoised(const at::Tensor& windows_NW) const;
  // Mean squared error on the training windows, at the end.
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
  std::vector<at::Tensor> encoder_, decoder_;  // weights and biases in at::lstm's order
  at::Tensor mean_LH_, log_variance_LH_, out_1H_, out_bias_1_;
  double error_ = 0;
};

}  // namespace sluice::minder
