// RMSNorm of rows whose columns are cut over the TP ranks: queries or keys of all heads (OLMo 2). For rows
// that a rank has whole, as with tp = 1, it is ops::rms_norm.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/tensor_parallel.h"

namespace sluice::layers {

// Several ranks may have the same columns (key heads if TP exceeds their number). Each has a part of these
// columns' gradient: what its own queries give.
struct RankNorm {
  TensorParallel parallel;
  int64_t width = 0;  // columns of all ranks together; a column on several ranks counts as often
  int64_t ranks = 1;  // ranks over which a row is cut
  double eps = 0;
  double offset = 0;  // added to weights

  // x [R, width ÷ ranks] and its weights are this rank's. Collective over several ranks.
  at::Tensor forward(const at::Tensor& x_RW, const at::Tensor& weight_W) const;
  // Returns the gradient of x_RW and adds that of the weights to dweight_W, unless this is undefined.
  at::Tensor backward(const at::Tensor& dy_RW, const at::Tensor& x_RW, const at::Tensor& weight_W,
                      const at::Tensor& dweight_W) const;

 private:
  // The sum over all ranks, in their order, of one number a row.
  at::Tensor summed(const at::Tensor& own_R) const;
  at::Tensor inverse_rms(const at::Tensor& wide_RW) const;
};

}  // namespace sluice::layers
