// The sum that ends both halves of a decoder layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/tensor_parallel.h"

namespace sluice::layers {

// x + a·w over all TP ranks' parts of the width A: x [S, H] and the result are row shards, a [T, A] and
// w [A, H] this rank's cut.
at::Tensor add_product(const TensorParallel& parallel, const at::Tensor& x_SH, const at::Tensor& a_TA,
                       const at::Tensor& w_AH);

}  // namespace sluice::layers
