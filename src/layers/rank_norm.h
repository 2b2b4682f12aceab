// RMSNorm of rows whose columns are cut over the TP ranks: queries or keys of all heads (OLMo 2). On one
// rank, and of rows that a rank has whole, it is ops::rms_norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/tensor_parallel.h"

namespace sluice::layers {

// Several ranks may have the same columns (key heads with more ranks than heads); each has a part of their
// gradient: what its own queries give.
struct RankNorm {
  TensorParallel parallel;
  int64_t width = 0;  // of all ranks' columns together, those that several have counted as often
  int64_t ranks = 1;  // that a row is cut over
  double eps = 0;
  double offset = 0;  // added to weights

  // x [R, width ÷ ranks] and its weights, this rank's; collective with several ranks.
  at::Tensor forward(const at::Tensor& x_RW, const at::Tensor& weight_W) const;
  // The gradient of x_RW, and that of the weights added, unless undefined.
  at::Tensor backward(const at::Tensor& dy_RW, const at::Tensor& x_RW, const at::Tensor& weight_W,
                      const at::Tensor& dweight_W) const;

 private:
  // The sum over all ranks, in their order, of one number a row.
  at::Tensor summed(const at::Tensor& own_R) const;
  at::Tensor inverse_rms(const at::Tensor& wide_RW) const;
};

}  // namespace sluice::layers
