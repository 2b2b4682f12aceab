#include "layers/layer_embedding.h"

#include <ATen/TensorOperators.h>

#include "layers/product.h"
#include "layers/row_norm.h"
#include "model/layer.h"
#include "ops/embedding.h"
#include "ops/linear.h"

namespace sluice::layers {

at::Tensor layer_embedding_forward(const LayerContext& context, const EmbeddingParameters& weights,
                                   const at::Tensor& id_T, const at::Tensor& x_SH,
                                   LayerEmbeddingState* saved) {
  const model::LayerEmbedding& own = *weights.kind->by_layer;
  const at::Tensor projected_SC =
      ops::times_transposed(x_SH, weights.layer_projection_CH).mul_(own.projection_scale);
  const at::Tensor normed_RP =
      norm_rows(own.norm, projected_SC.view({-1, own.width}), {weights.layer_norm_P, {}}).y_TH;
  at::Tensor input_SC = context.parallel.reduce_scatter_rows(
      ops::embedding_lookup(weights.layer_table_VC, id_T, weights.vocabulary.begin));
  input_SC.mul_(own.table_scale).add_(normed_RP.view_as(projected_SC)).mul_(own.scale);
  if (saved != nullptr)
    *saved = {x_SH, projected_SC, weights.layer_projection_CH.clone(), weights.layer_norm_P.clone()};
  return input_SC;
}

void layer_embedding_backward(const LayerContext& context, const at::Tensor& id_T,
                              const LayerEmbeddingState& saved, const at::Tensor& dinput_SC,
                              const EmbeddingParameters& gradients, at::Tensor& dx_SH) {
  const model::LayerEmbedding& own = *gradients.kind->by_layer;
  const at::Tensor dsum_SC = dinput_SC * own.scale;
  if (gradients.layer_table_VC.defined()) {
    ops::embedding_lookup_backward(context.parallel.all_gather_rows(dsum_SC * own.table_scale), id_T,
                                   gradients.vocabulary.begin, gradients.layer_table_VC);
  }
  const at::Tensor projected_RP = saved.projected_SC.view({-1, own.width});
  const NormVectors vectors{saved.norm_P, {}};
  at::Tensor dprojected_SC =
      norm_rows_backward(own.norm, dsum_SC.view({-1, own.width}), projected_RP, vectors,
                         norm_rows(own.norm, projected_RP, vectors).inverse_rms_T,
                         /*residual_TH=*/{}, {gradients.layer_norm_P, {}})
          .dx_TH.view_as(saved.projected_SC);
  dprojected_SC = dprojected_SC * own.projection_scale;
  accumulate_gradient(gradients.layer_projection_CH, dprojected_SC, saved.x_SH);
  dx_SH = dx_SH + ops::times(dprojected_SC, saved.projection_CH);
}

}  // namespace sluice::layers
