// S: rows of this rank's shard, R: all rows with a target, M: rows that each rank contributes (Targets), G: M
// of all ranks, C: rows of one chunk, H: hidden, V: vocabulary entries of this rank, 3: softmax statistics
// (ops/cross_entropy.h).
#include "layers/head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interval.h"
#include "base/text.h"
#include "layers/row_norm.h"
#include "model/head_chunk_rows.h"
#include "model/layer.h"
#include "ops/cross_entropy.h"
#include "ops/device.h"
#include "ops/linear.h"

namespace sluice::layers {
namespace {

at::Tensor figures_of_rows(const std::vector<double>& values, size_t rows, const at::Device& device) {
  if (values.empty()) return {};
  SLUICE_ASSERT(rows > 0 && values.size() % rows == 0,
                base::text(values.size(), " figures for ", rows, " rows with a target"));
  return ops::to_device(values, device).view({static_cast<int64_t>(rows), -1});
}

// Logits in the narrowest type that the softmax takes (ops/cross_entropy.h).
at::Tensor softmax_logits(const at::Tensor& y_CH, const at::Tensor& output_VH) {
  return y_CH.is_cuda() ? ops::times_transposed(y_CH, output_VH)
                        : ops::wide_times_transposed(y_CH, output_VH);
}

int64_t softmax_logit_bytes(const at::Tensor& x) {
  if (x.scalar_type() == at::kDouble) return 8;
  return x.is_cuda() ? x.element_size() : 4;
}

// In place: c·tanh(x/c). Returns the derivative 1 − tanh²(x/c), or undefined without a cap.
at::Tensor cap_logits(double cap, const at::Tensor& logits_CV) {
  if (cap == 0) return {};
  logits_CV.div_(cap).tanh_();
  const at::Tensor derivative_CV = logits_CV.square().neg_().add_(1);
  logits_CV.mul_(cap);
  return derivative_CV;
}

double logit_divisor(const LayerContext& context, const HeadParameters& weights) {
  return weights.kind->divisor * context.temperature;
}

// The bias for logits whose rows were already divided by the divisor; undefined: none.
at::Tensor scaled_bias(const LayerContext& context, const HeadParameters& weights) {
  return weights.bias_K.defined() ? weights.bias_K / logit_divisor(context, weights) : at::Tensor();
}

// One chunk's logits on this rank, and its softmax statistics.
struct ChunkSoftmax {
  at::Tensor logits_CV;
  at::Tensor dcapped_CV;  // derivative by the uncapped logits; undefined without a cap
  at::Tensor shard_C3;
  at::Tensor whole_C3;
};

ChunkSoftmax chunk_softmax(const LayerContext& context, const HeadParameters& weights, const at::Tensor& y_CH,
                           const at::Tensor& target_C) {
  at::Tensor logits_CV = softmax_logits(y_CH, weights.output_VH);
  const at::Tensor bias_V = scaled_bias(context, weights);
  if (bias_V.defined()) logits_CV.add_(bias_V);
  const at::Tensor dcapped_CV = cap_logits(weights.kind->cap, logits_CV);
  const at::Tensor shard_C3 = ops::row_statistics(logits_CV, target_C, weights.vocabulary.begin);
  const at::Tensor all_SC3 = context.parallel.all_gather_rows(shard_C3.unsqueeze(0));
  return {logits_CV, dcapped_CV, shard_C3, ops::combine(all_SC3)};
}

// One chunk's contribution to the step.
struct ChunkGradient {
  at::Tensor dlogits_CV;
  at::Tensor reported_C;
  at::Tensor notes_CK;  // undefined: none
};

ChunkGradient gradient_of_targets(const LayerContext& context, const HeadParameters& weights,
                                  const Targets& targets, base::Interval chunk, const at::Tensor& y_CH) {
  const at::Tensor target_C = targets.target_R.narrow(0, chunk.begin, chunk.size());
  const ChunkSoftmax softmax = chunk_softmax(context, weights, y_CH, target_C);
  const at::Tensor given_CF =
      targets.given_RF.defined() ? targets.given_RF.narrow(0, chunk.begin, chunk.size()) : at::Tensor();
  const RowLosses losses = context.loss->of(softmax.whole_C3, given_CF);
  const at::Tensor dlogits_CV =
      ops::cross_entropy_gradient(softmax.logits_CV, softmax.shard_C3, softmax.whole_C3, target_C,
                                  weights.vocabulary.begin, y_CH.scalar_type());
  ops::scale_cross_entropy_gradient(dlogits_CV, losses.softmax_R, losses.target_R, target_C,
                                    weights.vocabulary.begin);
  if (softmax.dcapped_CV.defined()) dlogits_CV.mul_(softmax.dcapped_CV);
  return {dlogits_CV, losses.reported_R, losses.notes_RK};
}

// Logits in the type in which a divergence is computed.
at::Tensor wide_logits(double cap, const at::Tensor& y_CH, const at::Tensor& output_VH,
                       const at::Tensor& bias_V, at::Tensor* dcapped_CV) {
  at::Tensor logits_CV = softmax_logits(y_CH, output_VH);
  if (logits_CV.scalar_type() != at::kDouble) logits_CV = logits_CV.to(at::kFloat);
  if (bias_V.defined()) logits_CV.add_(bias_V);
  const at::Tensor derivative_CV = cap_logits(cap, logits_CV);
  if (dcapped_CV != nullptr) *dcapped_CV = derivative_CV;
  return logits_CV;
}

// The number of this rank's entries that the teacher has, too.
int64_t common_entries(const Teacher& teacher, const HeadParameters& weights) {
  const int64_t own = weights.vocabulary.size();
  if (teacher.entries == 0) return own;
  return std::clamp<int64_t>(teacher.entries - weights.vocabulary.begin, 0, own);
}

// A teacher's divergence and its gradient, as wide as it is computed.
DistilledRows divergence_from(const LayerContext& context, const HeadParameters& weights, size_t which,
                              const HeadRows& teacher, const at::Tensor& y_CH,
                              const at::Tensor& teacher_y_CH) {
  at::Tensor dcapped_CV;
  const at::Tensor logits_CV =
      wide_logits(weights.kind->cap, y_CH, weights.output_VH, scaled_bias(context, weights), &dcapped_CV);
  const at::Tensor teacher_CV =
      wide_logits(teacher.cap, teacher_y_CH, teacher.output_VH, teacher.bias_V, nullptr);
  const int64_t entries = logits_CV.size(1),
                common = common_entries(context.distillation->teachers[which], weights);
  DistilledRows found = distill(*context.distillation, context.parallel, logits_CV.narrow(1, 0, common),
                                teacher_CV.narrow(1, 0, common));
  if (common < entries) found.dlogits_CV = at::constant_pad_nd(found.dlogits_CV, {0, entries - common});
  if (dcapped_CV.defined()) found.dlogits_CV.mul_(dcapped_CV);
  return found;
}

// The weighted sum of the teachers' divergences. `teachers` have all TP ranks' rows, of which this chunk has
// `place_C`. Each divergence makes the trained model's logits anew, because it overwrites them.
ChunkGradient gradient_of_divergences(const LayerContext& context, const HeadParameters& weights,
                                      const std::vector<HeadRows>& teachers, const at::Tensor& y_CH,
                                      const at::Tensor& place_C) {
  DistilledRows sum;
  for (size_t i = 0; i < teachers.size(); ++i) {
    DistilledRows found =
        divergence_from(context, weights, i, teachers[i], y_CH, teachers[i].row_MH.index_select(0, place_C));
    if (const double weight = context.distillation->teachers[i].weight; weight != 1) {
      found.dlogits_CV.mul_(weight);
      found.loss_C = weight * found.loss_C;
    }
    if (i == 0) {
      sum = std::move(found);
    } else {
      sum.dlogits_CV.add_(found.dlogits_CV);
      sum.loss_C = sum.loss_C + found.loss_C;
    }
  }
  return {sum.dlogits_CV.to(y_CH.scalar_type()), sum.loss_C, {}};
}

// The teachers' divergences mixed with the targets' own loss. The latter recomputes the logits, because a
// divergence needs more memory for a chunk than is left beside a second copy.
ChunkGradient gradient_of_teachers(const LayerContext& context, const HeadParameters& weights,
                                   const Targets& targets, const std::vector<HeadRows>& teachers,
                                   base::Interval chunk, const at::Tensor& y_CH, const at::Tensor& place_C) {
  ChunkGradient found = gradient_of_divergences(context, weights, teachers, y_CH, place_C);
  const double alpha = context.distillation->alpha;
  if (alpha == 1) return found;
  const ChunkGradient own = gradient_of_targets(context, weights, targets, chunk, y_CH);
  found.dlogits_CV.mul_(alpha).add_(own.dlogits_CV, 1 - alpha);
  found.reported_C = alpha * found.reported_C + (1 - alpha) * own.reported_C;
  return found;
}

// The input of the output matrix: the norm of x, divided so that the products are the logits.
ops::RmsNorm final_norm(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x) {
  ops::RmsNorm norm = norm_rows(weights.kind->norm, x, final_vectors(weights));
  const double divisor = logit_divisor(context, weights);
  if (divisor != 1.0) norm.y_TH.div_(divisor);
  return norm;
}

// Sums that stay on the device: reading them would make the host wait for the device.
at::Tensor zero_sums(const at::Tensor& like, int64_t count) {
  return at::zeros({count}, like.options().dtype(at::kDouble));
}

// Calls visit(chunk, places_C) for chunks of the rows that have a target; `chunk` is an interval of these
// rows. All chunks but the last have full length, so that memory does not depend on the exact number of rows.
template <typename Visit>
void for_each_chunk(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x,
                    const Targets& targets, Visit visit) {
  const int64_t rows = targets.place_R.size(0);
  const int64_t chunk_rows = head_chunk_rows(context, weights, softmax_logit_bytes(x));
  for (int64_t begin = 0; begin < rows; begin += chunk_rows) {
    const base::Interval part{begin, std::min(rows, begin + chunk_rows)};
    visit(part, targets.place_R.narrow(0, part.begin, part.size()));
  }
}

}  // namespace

Targets targets(const std::vector<int64_t>& target_of_row, const TensorParallel& parallel,
                const at::Device& device, const std::vector<double>& given) {
  const int64_t rows = static_cast<int64_t>(target_of_row.size()) / parallel.tp;  // per shard
  std::vector<std::vector<int64_t>> of_rank(static_cast<size_t>(parallel.tp));
  std::vector<int64_t> targets;
  for (size_t row = 0; row < target_of_row.size(); ++row) {
    if (target_of_row[row] < 0) continue;
    const int64_t rank = static_cast<int64_t>(row) / rows;
    of_rank[static_cast<size_t>(rank)].push_back(static_cast<int64_t>(row) - rank * rows);
    targets.push_back(target_of_row[row]);
  }
  size_t most = 0;
  for (const std::vector<int64_t>& each : of_rank) most = std::max(most, each.size());
  std::vector<int64_t> places;
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    for (size_t i = 0; i < of_rank[rank].size(); ++i) places.push_back(static_cast<int64_t>(rank * most + i));
  }
  std::vector<int64_t>& own = of_rank[static_cast<size_t>(parallel.t)];
  const auto own_rows = static_cast<int64_t>(own.size());
  own.resize(most, 0);
  return {ops::to_device(own, device), own_rows, ops::to_device(places, device),
          ops::to_device(targets, device), figures_of_rows(given, targets.size(), device)};
}

int64_t head_chunk_rows(const LayerContext& context, const HeadParameters& weights, int64_t logit_bytes) {
  // The width of the largest shard, so that all ranks cut the rows alike.
  const int64_t width = (weights.kind->output.rows() + context.parallel.tp - 1) / context.parallel.tp;
  int64_t copies = 1;
  if (context.distillation) {
    copies = model::distilled_logit_copies(context.distillation->divergence,
                                           context.distillation->teachers.size());
    logit_bytes = std::max<int64_t>(4, logit_bytes);  // divergences are in float or wider on every device
  }
  if (weights.kind->cap > 0) ++copies;  // the cap's derivative needs another copy
  return std::max(model::kLeastHeadChunkRows, context.logits_chunk_bytes / (width * logit_bytes * copies));
}

HeadResult head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                 const at::Tensor& x_SH, const Targets& targets,
                                 const HeadParameters& gradients) {
  const at::Tensor sums = zero_sums(x_SH, 1 + context.loss->notes());
  if (targets.place_R.numel() == 0) return {sums, at::zeros_like(x_SH)};
  // Backward takes the rows out of x once more, so that no copy of them exists beside the logits.
  ops::RmsNorm norm = final_norm(context, weights, x_SH.index_select(0, targets.row_M));
  at::Tensor y_GH = context.parallel.all_gather_rows(norm.y_TH);
  norm.y_TH.reset();
  std::vector<HeadRows> teachers = targets.teachers;
  for (HeadRows& teacher : teachers) teacher.row_MH = context.parallel.all_gather_rows(teacher.row_MH);
  at::Tensor dy_GH = at::zeros_like(y_GH);
  for_each_chunk(context, weights, x_SH, targets, [&](base::Interval chunk, const at::Tensor& place_C) {
    const at::Tensor y_CH = y_GH.index_select(0, place_C);
    const ChunkGradient found =
        teachers.empty() ? gradient_of_targets(context, weights, targets, chunk, y_CH)
                         : gradient_of_teachers(context, weights, targets, teachers, chunk, y_CH, place_C);
    sums[0].add_(found.reported_C.sum());
    if (found.notes_CK.defined()) sums.narrow(0, 1, found.notes_CK.size(1)).add_(found.notes_CK.sum(0));
    dy_GH.index_copy_(0, place_C, ops::times(found.dlogits_CV, weights.output_VH));
    if (gradients.output_VH.defined())
      ops::accumulate_weight_gradient(gradients.output_VH, found.dlogits_CV, y_CH);
    if (gradients.bias_K.defined()) {
      const at::Tensor dlogits_V = found.dlogits_CV.sum(0, /*keepdim=*/false, gradients.bias_K.scalar_type());
      at::Tensor(gradients.bias_K).add_(dlogits_V.div_(logit_divisor(context, weights)));
    }
  });
  teachers.clear();
  y_GH.reset();
  if (const double divisor = logit_divisor(context, weights); divisor != 1.0) dy_GH.div_(divisor);
  at::Tensor dy_MH = context.parallel.reduce_scatter_rows(dy_GH);
  dy_GH.reset();
  at::Tensor dx_MH = norm_rows_backward(weights.kind->norm, dy_MH, x_SH.index_select(0, targets.row_M),
                                        final_vectors(weights), norm.inverse_rms_T, /*residual_TH=*/{},
                                        final_vectors(gradients))
                         .dx_TH;
  dy_MH.reset();
  at::Tensor dx_SH = at::zeros_like(x_SH);
  dx_SH.index_copy_(0, targets.row_M.narrow(0, 0, targets.own), dx_MH.narrow(0, 0, targets.own));
  return {sums, dx_SH};
}

at::Tensor head_losses(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                       const Targets& targets) {
  const at::Tensor loss_R = zero_sums(x_SH, targets.place_R.size(0));
  if (targets.place_R.numel() == 0) return loss_R;
  const at::Tensor y_GH = context.parallel.all_gather_rows(
      final_norm(context, weights, x_SH.index_select(0, targets.row_M)).y_TH);
  for_each_chunk(context, weights, x_SH, targets, [&](base::Interval chunk, const at::Tensor& place_C) {
    const ChunkSoftmax softmax = chunk_softmax(context, weights, y_GH.index_select(0, place_C),
                                               targets.target_R.narrow(0, chunk.begin, chunk.size()));
    loss_R.narrow(0, chunk.begin, chunk.size()).copy_(ops::token_losses(softmax.whole_C3));
  });
  return loss_R;
}

HeadRows head_rows(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                   const Targets& targets) {
  return {final_norm(context, weights, x_SH.index_select(0, targets.row_M)).y_TH, weights.output_VH,
          weights.kind->cap, scaled_bias(context, weights)};
}

// Ranks contribute equally many entries: a rank with fewer than the widest pads with zeros.
at::Tensor head_logits(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_RH) {
  const int64_t tp = context.parallel.tp, vocabulary = weights.kind->output.rows();
  const ops::RmsNorm norm = final_norm(context, weights, x_RH);
  at::Tensor logits_RV = ops::wide_times_transposed(norm.y_TH, weights.output_VH);
  const at::Tensor bias_V = scaled_bias(context, weights);
  if (bias_V.defined()) logits_RV.add_(bias_V);
  cap_logits(weights.kind->cap, logits_RV);
  if (tp == 1) return logits_RV;
  const int64_t widest = (vocabulary + tp - 1) / tp;
  const at::Tensor own_WR = at::zeros({widest, logits_RV.size(0)}, logits_RV.options());
  own_WR.narrow(0, 0, weights.vocabulary.size()).copy_(logits_RV.t());
  const at::Tensor all_WR = context.parallel.all_gather_rows(own_WR);
  std::vector<at::Tensor> parts;
  for (int64_t t = 0; t < tp; ++t)
    parts.push_back(all_WR.narrow(0, t * widest, base::even_part(vocabulary, tp, t).size()));
  return at::cat(parts).t().contiguous();
}

}  // namespace sluice::layers
