#include "layers/embedding.h"

#include <ATen/TensorOperators.h>

#include "model/layer.h"
#include "ops/embedding.h"

namespace sluice::layers {

at::Tensor embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                             const at::Tensor& id_T) {
  // One rank holds a token's row and the others give zeros, so the sum is exact.
  at::Tensor x_SH = context.parallel.reduce_scatter_rows(
      ops::embedding_lookup(weights.table_VH, id_T, weights.vocabulary.begin));
  const double factor = weights.kind->scale;
  if (factor != 1.0) x_SH.mul_(factor);
  return x_SH;
}

void embedding_backward(const LayerContext& context, const at::Tensor& id_T, const at::Tensor& dx_SH,
                        const EmbeddingParameters& gradients) {
  const double factor = gradients.kind->scale;
  const at::Tensor dx_scaled_SH = factor == 1.0 ? dx_SH : dx_SH * factor;
  ops::embedding_lookup_backward(context.parallel.all_gather_rows(dx_scaled_SH), id_T,
                                 gradients.vocabulary.begin, gradients.table_VH);
}

}  // namespace sluice::layers
