#include "layers/embedding.h"

#include "ops/embedding.h"

namespace sluice::layers {

at::Tensor embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                             const at::Tensor& id_T) {
  // One rank holds a token's row and the others give zeros, so the sum is exact.
  return context.parallel.reduce_scatter_rows(
      ops::embedding_lookup(weights.table_VH, id_T, weights.vocabulary.begin));
}

void embedding_backward(const LayerContext& context, const at::Tensor& id_T, const at::Tensor& dx_SH,
                        const EmbeddingParameters& gradients) {
  ops::embedding_lookup_backward(context.parallel.all_gather_rows(dx_SH), id_T, gradients.vocabulary.begin,
                                 gradients.table_VH);
}

}  // namespace sluice::layers
