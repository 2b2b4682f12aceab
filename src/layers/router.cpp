#include "layers/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include "ops/linear.h"

namespace sluice::layers {

at::Tensor router_scores(const at::Tensor& normed_SH, const at::Tensor& router_EH, const at::Tensor& bias_E) {
  const at::Tensor logit_SE = ops::wide_times_transposed(normed_SH, router_EH);
  if (bias_E.defined()) logit_SE.add_(bias_E);
  return at::_softmax(logit_SE, 1, /*half_to_float=*/false);
}

at::Tensor route_weights(const model::Experts& experts, const at::Tensor& score_SE, const at::Tensor& id_SK) {
  at::Tensor chosen_SK = score_SE.gather(1, id_SK.to(at::kLong));
  if (experts.normalised) chosen_SK.div_(chosen_SK.sum(1, /*keepdim=*/true));
  return chosen_SK;
}

at::Tensor router_gradient(const model::Experts& experts, const at::Tensor& score_SE, const at::Tensor& id_SK,
                           const at::Tensor& dweight_SK, const at::Tensor& dscore_SE) {
  const at::Tensor index_SK = id_SK.to(at::kLong);
  at::Tensor dchosen_SK = dweight_SK;
  if (experts.normalised) {
    const at::Tensor chosen_SK = score_SE.gather(1, index_SK), sum_S1 = chosen_SK.sum(1, true);
    dchosen_SK = (dweight_SK - (dweight_SK * chosen_SK).sum(1, true).div_(sum_S1)).div_(sum_S1);
  }
  at::Tensor all_SE = at::zeros_like(score_SE).scatter_(1, index_SK, dchosen_SK);
  if (dscore_SE.defined()) all_SE.add_(dscore_SE);
  return all_SE.sub_((all_SE * score_SE).sum(1, true)).mul_(score_SE);
}

}  // namespace sluice::layers
