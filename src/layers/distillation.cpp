// C: rows of a chunk, V: vocabulary entries of this rank, S: TP ranks.
#include "layers/distillation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace sluice::layers {
namespace {

at::Tensor of_all_shards(const TensorParallel& parallel, const at::Tensor& own_C1) {
  return parallel.all_gather_rows(own_C1.unsqueeze(0));
}

// In place: log softmax over the whole vocabulary.
void to_log_softmax(const TensorParallel& parallel, const at::Tensor& logits_CV) {
  at::Tensor total_C1 = at::logsumexp(logits_CV, {1}, /*keepdim=*/true);
  if (parallel.tp > 1) total_C1 = at::logsumexp(of_all_shards(parallel, total_C1), {0});
  logits_CV.sub_(total_C1);
}

// Sums over the whole vocabulary, in double; shards are added in order. A sum in double copies its operand,
// so few rows are added at a time.
at::Tensor row_sum(const TensorParallel& parallel, const at::Tensor& term_CV) {
  std::vector<at::Tensor> sums;
  for (int64_t row = 0; row < term_CV.size(0); row += model::kDivergenceSumRows) {
    const int64_t rows = std::min(model::kDivergenceSumRows, term_CV.size(0) - row);
    sums.push_back(term_CV.narrow(0, row, rows).sum({1}, /*keepdim=*/true, at::kDouble));
  }
  const at::Tensor own_C1 =
      sums.empty() ? term_CV.sum({1}, /*keepdim=*/true, at::kDouble) : at::cat(sums, 0);
  return parallel.tp > 1 ? of_all_shards(parallel, own_C1).sum(0) : own_C1;
}

DistilledRows forward_kl(const TensorParallel& parallel, const at::Tensor& log_q_CV,
                         const at::Tensor& log_p_CV) {
  const at::Tensor p_CV = log_p_CV.exp();
  const at::Tensor loss_C1 = row_sum(parallel, (log_p_CV - log_q_CV).mul_(p_CV));
  return {loss_C1.squeeze(1), log_q_CV.exp().sub_(p_CV)};
}

// KL(q ‖ other), and q (gap − KL) as its gradient by the logits. REQUIRES: the gradient of `other` by q adds
// the same number to all entries, which the softmax cancels. gap = log q − log other.
DistilledRows kl_of_model(const TensorParallel& parallel, const at::Tensor& log_q_CV,
                          const at::Tensor& log_other_CV) {
  const at::Tensor q_CV = log_q_CV.exp();
  at::Tensor gap_CV = log_q_CV - log_other_CV;
  const at::Tensor loss_C1 = row_sum(parallel, gap_CV * q_CV);
  return {loss_C1.squeeze(1), gap_CV.sub_(loss_C1.to(gap_CV.scalar_type())).mul_(q_CV)};
}

// The derivative of β KL(p ‖ m) + (1 − β) KL(q ‖ m) by q is (1 − β) log(q / m). The terms from m's change
// cancel, because β p + (1 − β) q is m.
DistilledRows jsd(const TensorParallel& parallel, double beta, const at::Tensor& log_q_CV,
                  const at::Tensor& log_p_CV) {
  const at::Tensor log_m_CV = at::logaddexp(log_p_CV + std::log(beta), log_q_CV + std::log1p(-beta));
  const at::Tensor of_teacher_C1 = row_sum(parallel, (log_p_CV - log_m_CV).mul_(log_p_CV.exp()));
  DistilledRows of_model = kl_of_model(parallel, log_q_CV, log_m_CV);
  return {beta * of_teacher_C1.squeeze(1) + (1 - beta) * of_model.loss_C, of_model.dlogits_CV.mul_(1 - beta)};
}

}  // namespace

DistilledRows distill(const Distillation& distillation, const TensorParallel& parallel,
                      const at::Tensor& logits_CV, const at::Tensor& teacher_CV) {
  for (const at::Tensor& each : {logits_CV, teacher_CV}) {
    if (distillation.temperature != 1) each.div_(distillation.temperature);
    to_log_softmax(parallel, each);
  }
  DistilledRows found;
  switch (distillation.divergence) {
    case Divergence::kForwardKl: found = forward_kl(parallel, logits_CV, teacher_CV); break;
    case Divergence::kReverseKl: found = kl_of_model(parallel, logits_CV, teacher_CV); break;
    case Divergence::kJsd: found = jsd(parallel, distillation.beta, logits_CV, teacher_CV); break;
  }
  if (distillation.temperature != 1) found.dlogits_CV.div_(distillation.temperature);
  return found;
}

}  // namespace sluice::layers
