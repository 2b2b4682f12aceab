// S: rows of this rank's shard, M: rows that each rank contributes (Targets), O: its own ones among them, G:
// M of all ranks, R: all rows with a target, Q: sequences, H: hidden, K: numbers of a row.
#include "layers/number_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "layers/gated.h"
#include "layers/row_norm.h"
#include "layers/sequence_sums.h"
#include "model/layer.h"
#include "ops/linear.h"

namespace sluice::layers {
namespace {

NormVectors neck_vectors(const HeadParameters& parameters) {
  return {parameters.neck_norm_H, parameters.neck_norm_bias_H};
}

// The rows on which numbers are computed, after the final norm: rows with a target, or the means of their
// sequences.
class PooledRows {
 public:
  PooledRows(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
             const Targets& targets, const SequenceRows& sequences)
      : context_(context), weights_(weights), x_SH_(x_SH), targets_(targets), sequences_(sequences) {}

  bool takes_means() const { return weights_.kind->pooling == model::Pooling::kMean; }

  at::Tensor forward() {
    const model::Norm& norm = weights_.kind->norm;
    if (!takes_means()) {
      ops::RmsNorm of_rows = norm_rows(norm, x_SH_.index_select(0, targets_.row_M), final_vectors(weights_));
      inverse_rms_ = std::move(of_rows.inverse_rms_T);
      return std::move(of_rows.y_TH);
    }
    ops::RmsNorm of_all = norm_rows(norm, x_SH_, final_vectors(weights_));
    inverse_rms_ = std::move(of_all.inverse_rms_T);
    return sequence_means(context_, sequences_, of_all.y_TH)
        .index_select(0, sequence_of(targets_.row_M))
        .to(x_SH_.scalar_type());
  }

  // The gradient of x from that of this rank's own rows, which it frees.
  at::Tensor backward(at::Tensor dy_OH, const HeadParameters& gradients) const {
    const model::Norm& norm = weights_.kind->norm;
    const at::Tensor own_O = targets_.row_M.narrow(0, 0, targets_.own);
    if (takes_means()) {
      const at::Tensor dy_SH =
          sequence_means_backward(context_, sequences_, sequence_of(own_O), dy_OH, x_SH_.size(0));
      return norm_rows_backward(norm, dy_SH, x_SH_, final_vectors(weights_), inverse_rms_,
                                /*residual_TH=*/{}, final_vectors(gradients))
          .dx_TH;
    }
    if (targets_.own == 0) return at::zeros_like(x_SH_);
    const at::Tensor dx_OH =
        norm_rows_backward(norm, dy_OH, x_SH_.index_select(0, own_O), final_vectors(weights_),
                           inverse_rms_.narrow(0, 0, targets_.own), /*residual_TH=*/{},
                           final_vectors(gradients))
            .dx_TH;
    dy_OH.reset();
    at::Tensor dx_SH = at::zeros_like(x_SH_);
    dx_SH.index_copy_(0, own_O, dx_OH);
    return dx_SH;
  }

 private:
  at::Tensor sequence_of(const at::Tensor& row_M) const {
    return sequences_of_shard(context_, sequences_, x_SH_.size(0)).index_select(0, row_M);
  }

  const LayerContext& context_;
  const HeadParameters& weights_;
  const at::Tensor& x_SH_;
  const Targets& targets_;
  const SequenceRows& sequences_;
  at::Tensor inverse_rms_;
};

// The layers between the pooled rows and the matrix.
struct NeckRows {
  at::Tensor dense_MH, active_MH, y_MH, inverse_rms_M;
};

NeckRows through_neck(const HeadParameters& weights, const at::Tensor& pooled_MH) {
  if (!weights.kind->neck) return {{}, {}, pooled_MH, {}};
  const model::Neck& neck = *weights.kind->neck;
  NeckRows rows{.dense_MH = ops::times_transposed(pooled_MH, weights.neck_HH)};
  if (weights.neck_bias_H.defined()) rows.dense_MH.add_(weights.neck_bias_H);
  rows.active_MH = act(neck.activation, rows.dense_MH);
  rows.y_MH = rows.active_MH;
  if (!neck.norm) return rows;
  ops::RmsNorm normed = norm_rows(*neck.norm, rows.active_MH, neck_vectors(weights));
  rows.y_MH = std::move(normed.y_TH);
  rows.inverse_rms_M = std::move(normed.inverse_rms_T);
  return rows;
}

// Adds to the neck's gradients and returns the gradient of the pooled rows.
at::Tensor neck_backward(const HeadParameters& weights, const NeckRows& rows, const at::Tensor& pooled_OH,
                         at::Tensor dy_OH, const HeadParameters& gradients) {
  if (!weights.kind->neck) return dy_OH;
  const model::Neck& neck = *weights.kind->neck;
  const int64_t own = dy_OH.size(0);
  if (neck.norm) {
    dy_OH =
        norm_rows_backward(*neck.norm, dy_OH, rows.active_MH.narrow(0, 0, own), neck_vectors(weights),
                           rows.inverse_rms_M.narrow(0, 0, own), /*residual_TH=*/{}, neck_vectors(gradients))
            .dx_TH;
  }
  const at::Tensor ddense_OH = act_backward(neck.activation, dy_OH, rows.dense_MH.narrow(0, 0, own));
  if (gradients.neck_HH.defined()) ops::accumulate_weight_gradient(gradients.neck_HH, ddense_OH, pooled_OH);
  if (gradients.neck_bias_H.defined())
    gradients.neck_bias_H.add_(ddense_OH.sum(0, /*keepdim=*/false, gradients.neck_bias_H.scalar_type()));
  return ops::times(ddense_OH, weights.neck_HH);
}

at::Tensor numbers_of(const HeadParameters& weights, const at::Tensor& y_MH) {
  if (!weights.output_VH.defined()) return y_MH.to(at::kDouble);
  at::Tensor numbers_MK = ops::wide_times_transposed(y_MH, weights.output_VH).to(at::kDouble);
  if (weights.bias_K.defined()) numbers_MK.add_(weights.bias_K.to(at::kDouble));
  return numbers_MK;
}

at::Tensor of_all_rows(const LayerContext& context, const at::Tensor& numbers_MK, const Targets& targets) {
  return context.parallel.all_gather_rows(numbers_MK).index_select(0, targets.place_R);
}

// The entries of `values_RK` for this rank's own rows.
at::Tensor of_own_rows(const LayerContext& context, const at::Tensor& values_RK, const Targets& targets) {
  const int64_t given = targets.row_M.size(0);
  const at::Tensor values_GK =
      at::zeros({given * context.parallel.tp, values_RK.size(1)}, values_RK.options());
  values_GK.index_copy_(0, targets.place_R, values_RK);
  return values_GK.narrow(0, given * context.parallel.t, targets.own);
}

// Adds to the gradients of matrix and bias and returns the gradient of the rows.
at::Tensor backward_of_numbers(const HeadParameters& weights, const at::Tensor& dnumbers_MK,
                               const at::Tensor& y_MH, const HeadParameters& gradients) {
  const at::Tensor narrow_MK = dnumbers_MK.to(y_MH.scalar_type());
  if (!weights.output_VH.defined()) return narrow_MK;
  if (gradients.output_VH.defined()) ops::accumulate_weight_gradient(gradients.output_VH, narrow_MK, y_MH);
  if (gradients.bias_K.defined())
    gradients.bias_K.add_(dnumbers_MK.sum(0).to(gradients.bias_K.scalar_type()));
  return ops::times(narrow_MK, weights.output_VH);
}

// Whether there is nothing to compute: no row has a target, and no means are taken with other lanes.
bool has_nothing(const PooledRows& rows, const Targets& targets) {
  return !rows.takes_means() && targets.place_R.numel() == 0;
}

}  // namespace

at::Tensor head_numbers(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                        const Targets& targets, const SequenceRows& sequences) {
  const model::Weight& output = weights.kind->output;
  PooledRows rows(context, weights, x_SH, targets, sequences);
  at::Tensor pooled_MH;
  if (!has_nothing(rows, targets)) pooled_MH = rows.forward();
  if (targets.place_R.numel() == 0) {
    return at::zeros({0, output.rows() > 0 ? output.rows() : output.columns},
                     x_SH.options().dtype(at::kDouble));
  }
  return of_all_rows(context, numbers_of(weights, through_neck(weights, pooled_MH).y_MH), targets);
}

HeadResult number_head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                        const at::Tensor& x_SH, const Targets& targets,
                                        const SequenceRows& sequences, const HeadParameters& gradients) {
  SLUICE_ASSERT(context.number_loss != nullptr, "a head of numbers without a loss");
  const at::Tensor sums = at::zeros({1 + context.number_loss->notes()}, x_SH.options().dtype(at::kDouble));
  PooledRows rows(context, weights, x_SH, targets, sequences);
  if (has_nothing(rows, targets)) return {sums, at::zeros_like(x_SH)};
  at::Tensor pooled_MH = rows.forward();
  at::Tensor dpooled_OH = at::zeros({0, pooled_MH.size(1)}, pooled_MH.options());
  if (targets.place_R.numel() > 0) {
    const NeckRows neck = through_neck(weights, pooled_MH);
    const at::Tensor numbers_RK = of_all_rows(context, numbers_of(weights, neck.y_MH), targets);
    const NumberLosses losses = context.number_loss->of(numbers_RK, targets.target_R, targets.given_RF);
    sums[0].copy_(losses.loss_R.sum());
    if (losses.notes_RN.defined()) sums.narrow(0, 1, losses.notes_RN.size(1)).copy_(losses.notes_RN.sum(0));
    if (targets.own > 0) {
      const at::Tensor dy_OH = backward_of_numbers(weights, of_own_rows(context, losses.gradient_RK, targets),
                                                   neck.y_MH.narrow(0, 0, targets.own), gradients);
      dpooled_OH = neck_backward(weights, neck, pooled_MH.narrow(0, 0, targets.own), dy_OH, gradients);
    }
  }
  pooled_MH.reset();
  return {sums, rows.backward(std::move(dpooled_OH), gradients)};
}

}  // namespace sluice::layers
