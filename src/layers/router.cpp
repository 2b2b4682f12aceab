#include "layers/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "ops/expert_assignments.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace sluice::layers {

at::Tensor router_scores(const model::Experts& experts, const at::Tensor& normed_SH,
                         const at::Tensor& router_EH, const at::Tensor& bias_E) {
  at::Tensor logit_SE = ops::wide_times_transposed(normed_SH, router_EH);
  if (bias_E.defined()) logit_SE.add_(bias_E);
  return experts.sigmoid ? logit_SE.sigmoid_() : at::_softmax(logit_SE, 1, /*half_to_float=*/false);
}

at::Tensor chosen_experts(const model::Experts& experts, const at::Tensor& score_SE,
                          const at::Tensor& correction_E) {
  at::Tensor merit_SE =
      correction_E.defined() ? score_SE + correction_E.to(score_SE.scalar_type()) : score_SE;
  if (experts.groups > 1) {
    const int64_t rows = merit_SE.size(0), of_group = experts.count / experts.groups;
    const at::Tensor merit_SGN = merit_SE.view({rows, experts.groups, of_group});
    const at::Tensor best_SG = std::get<0>(at::topk(merit_SGN, 2, 2)).sum(2);
    const at::Tensor group_SC = ops::highest(best_SG, experts.groups_chosen).to(at::kLong);
    const at::Tensor left_out_SG =
        at::ones({rows, experts.groups}, score_SE.options().dtype(at::kBool)).scatter_(1, group_SC, false);
    merit_SE = merit_SGN.masked_fill(left_out_SG.unsqueeze(2), -std::numeric_limits<double>::infinity())
                   .view({rows, experts.count});
  }
  return ops::highest(merit_SE, experts.per_token);
}

at::Tensor route_weights(const model::Experts& experts, double floor, const at::Tensor& score_SE,
                         const at::Tensor& id_SK) {
  at::Tensor chosen_SK = score_SE.gather(1, id_SK.to(at::kLong));
  if (experts.normalised) chosen_SK.div_(chosen_SK.sum(1, /*keepdim=*/true).add_(floor));
  return experts.factor == 1.0 ? chosen_SK : chosen_SK.mul_(experts.factor);
}

at::Tensor router_gradient(const model::Experts& experts, double floor, const at::Tensor& score_SE,
                           const at::Tensor& id_SK, const at::Tensor& dweight_SK,
                           const at::Tensor& dscore_SE) {
  const at::Tensor index_SK = id_SK.to(at::kLong);
  at::Tensor dchosen_SK = experts.factor == 1.0 ? dweight_SK : dweight_SK * experts.factor;
  if (experts.normalised) {
    const at::Tensor chosen_SK = score_SE.gather(1, index_SK), sum_S1 = chosen_SK.sum(1, true).add_(floor);
    dchosen_SK = (dchosen_SK - (dchosen_SK * chosen_SK).sum(1, true).div_(sum_S1)).div_(sum_S1);
  }
  at::Tensor all_SE = at::zeros_like(score_SE).scatter_(1, index_SK, dchosen_SK);
  if (experts.sigmoid) {
    if (dscore_SE.defined()) {
      const at::Tensor sum_S1 = score_SE.sum(1, true);
      all_SE.add_((dscore_SE - (dscore_SE * score_SE).sum(1, true).div_(sum_S1)).div_(sum_S1));
    }
    return all_SE.mul_(score_SE).mul_(1 - score_SE);
  }
  if (dscore_SE.defined()) all_SE.add_(dscore_SE);
  return all_SE.sub_((all_SE * score_SE).sum(1, true)).mul_(score_SE);
}

at::Tensor router_logits(const at::Tensor& normed_SH, const at::Tensor& router_EH) {
  return ops::wide_times_transposed(normed_SH, router_EH);
}

namespace {

// For each choice of a row: the softmax that weighs it. Calls visit(choice, share_SE, index_S1).
template <typename Visit>
void for_each_choice(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK, Visit visit) {
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  at::Tensor left_SE = logit_SE;  // without experts that were chosen before
  for (int64_t choice = 0; choice < id_SK.size(1); ++choice) {
    const at::Tensor index_S1 = id_SK.narrow(1, choice, 1).to(at::kLong);
    const at::Tensor highest_S1 = logit_SE.gather(1, index_S1);
    const at::Tensor relation_SE = (highest_S1 - logit_SE).div_(at::maximum(logit_SE.abs(), highest_S1));
    const at::Tensor share_SE =
        at::_softmax(left_SE.masked_fill(relation_SE > 2 * jitter, kHidden), 1, /*half_to_float=*/false);
    visit(choice, share_SE, index_S1);
    left_SE = left_SE.scatter(1, index_S1, kHidden);
  }
}

}  // namespace

at::Tensor sparse_mixer_weights(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK) {
  at::Tensor weight_SK = at::empty(id_SK.sizes(), logit_SE.options());
  for_each_choice(jitter, logit_SE, id_SK,
                  [&](int64_t choice, const at::Tensor& share_SE, const at::Tensor& index_S1) {
                    weight_SK.narrow(1, choice, 1).copy_(share_SE.gather(1, index_S1));
                  });
  return weight_SK;
}

at::Tensor sparse_mixer_gradient(double jitter, const at::Tensor& logit_SE, const at::Tensor& id_SK,
                                 const at::Tensor& dweight_SK, const at::Tensor& dscore_SE) {
  at::Tensor dlogit_SE = at::zeros_like(logit_SE);
  for_each_choice(
      jitter, logit_SE, id_SK, [&](int64_t choice, const at::Tensor& share_SE, const at::Tensor& index_S1) {
        const at::Tensor d_S1 = share_SE.gather(1, index_S1).mul_(dweight_SK.narrow(1, choice, 1));
        dlogit_SE.scatter_add_(1, index_S1, d_S1).sub_(share_SE * d_S1);
      });
  if (!dscore_SE.defined()) return dlogit_SE;
  const at::Tensor score_SE = at::_softmax(logit_SE, 1, /*half_to_float=*/false);
  return dlogit_SE.add_((dscore_SE - (dscore_SE * score_SE).sum(1, true)).mul_(score_SE));
}

at::Tensor of_chosen(const at::Tensor& number_E, const at::Tensor& id_SK, const at::Tensor& like) {
  return number_E.to(like.scalar_type()).index_select(0, id_SK.reshape(-1)).view(id_SK.sizes());
}

// Adds through a matrix of all experts, whose sums have a fixed order.
void add_of_chosen(const at::Tensor& to_E, const at::Tensor& number_SK, const at::Tensor& id_SK) {
  if (!to_E.defined()) return;
  const at::Tensor all_SE = at::zeros({id_SK.size(0), to_E.size(0)}, number_SK.options())
                                .scatter_(1, id_SK.to(at::kLong), number_SK);
  to_E.add_(all_SE.sum(0));
}

at::Tensor RouterNorm::weight_H() const {
  return scale_H_ / std::sqrt(static_cast<double>(scale_H_.size(0)));
}

at::Tensor RouterNorm::forward(const at::Tensor& x_SH) const {
  return ops::rms_norm(x_SH, weight_H(), eps_).y_TH;
}

at::Tensor RouterNorm::backward(const at::Tensor& dy_SH, const at::Tensor& x_SH) const {
  const at::Tensor weight = weight_H(), scale_S = ops::rms_norm(x_SH, weight, eps_).inverse_rms_T;
  const at::Tensor dweight = dscale_H_.defined() ? at::zeros_like(dscale_H_) : at::Tensor();
  at::Tensor dx_SH = ops::rms_norm_backward(dy_SH, x_SH, weight, scale_S, /*residual_TH=*/{}, dweight).dx_TH;
  if (dweight.defined()) dscale_H_.add_(dweight / std::sqrt(static_cast<double>(dweight.size(0))));
  return dx_SH;
}

}  // namespace sluice::layers
