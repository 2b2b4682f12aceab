// Norms of rows that a rank has whole: RMSNorm or LayerNorm, with or without weights and biases. LayerNorm is
// RMSNorm of the rows minus their mean.
#pragma once

#include <ATen/core/Tensor.h>

#include "layers/parameters.h"
#include "model/layer.h"
#include "ops/rms_norm_result.h"

namespace sluice::layers {

// A norm's vectors or their gradients. Undefined if the norm has none; gradients also if it is frozen.
struct NormVectors {
  at::Tensor weight_H, bias_H;
};
NormVectors norm_vectors(const OperationShards& shards, const model::Norm& norm);
// The vectors of the norm before the output matrix.
NormVectors final_vectors(const HeadParameters& parameters);

ops::RmsNorm norm_rows(const model::Norm& norm, const at::Tensor& x_TH, const NormVectors& vectors);
// As ops::rms_norm_backward.
ops::RmsNormGradient norm_rows_backward(const model::Norm& norm, const at::Tensor& dy_TH,
                                        const at::Tensor& x_TH, const NormVectors& vectors,
                                        const at::Tensor& inverse_rms_T, const at::Tensor& residual_TH,
                                        const NormVectors& gradients);

}  // namespace sluice::layers
