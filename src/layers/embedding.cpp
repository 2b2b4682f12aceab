#include "layers/embedding.h"

#include <ATen/TensorOperators.h>

#include "model/layer.h"
#include "ops/embedding.h"

namespace sluice::layers {

at::Tensor embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                             const at::Tensor& id_T, const at::Tensor& position_T) {
  // One rank has a token's row and the others give zeros, so the sum is exact.
  at::Tensor x_SH = context.parallel.reduce_scatter_rows(
      ops::embedding_lookup(weights.table_VH, id_T, weights.vocabulary.begin));
  const double factor = weights.kind->scale;
  if (factor != 1.0) x_SH.mul_(factor);
  if (!weights.position_PH.defined()) return x_SH;
  const at::Tensor position_S = position_T.narrow(0, context.parallel.t * x_SH.size(0), x_SH.size(0));
  return x_SH.add_(weights.position_PH.index_select(0, position_S)).add_(weights.kind_KH[0]);
}

void embedding_backward(const LayerContext& context, const at::Tensor& id_T, const at::Tensor& position_T,
                        const at::Tensor& dx_SH, const EmbeddingParameters& gradients) {
  if (const at::Tensor& position_PH = gradients.position_PH; position_PH.defined()) {
    const at::Tensor position_S = position_T.narrow(0, context.parallel.t * dx_SH.size(0), dx_SH.size(0));
    position_PH.index_add_(0, position_S, dx_SH.to(position_PH.scalar_type()));
  }
  if (gradients.kind_KH.defined())
    gradients.kind_KH[0].add_(dx_SH.sum(0, /*keepdim=*/false, gradients.kind_KH.scalar_type()));
  if (!gradients.table_VH.defined()) return;
  const double factor = gradients.kind->scale;
  const at::Tensor dx_scaled_SH = factor == 1.0 ? dx_SH : dx_SH * factor;
  ops::embedding_lookup_backward(context.parallel.all_gather_rows(dx_scaled_SH), id_T,
                                 gradients.vocabulary.begin, gradients.table_VH);
}

}  // namespace sluice::layers
