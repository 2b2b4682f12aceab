// Final norm, output matrix and cross-entropy on one TP rank, fused: logits exist only for a chunk of rows
// at a time and are never made twice. The vocabulary is cut over the TP ranks, evenly or not.
//
// Only rows with a target come so far (the masked head of Shen et al., Long-VITA, 2025): they are taken out
// of the micro-batch in front of the norm, and nothing of the head, neither products nor transfers nor
// memory, is of others.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/context.h"
#include "layers/distillation.h"
#include "layers/parameters.h"

namespace sluice::layers {

// The rows that have a target, cut as the micro-batch's rows are over the TP ranks. Each rank gives as many
// rows to the others as the one with most, so those with fewer give the first of their shard once more, whose
// results nobody reads. All int64 on the layers' device.
struct Targets {
  at::Tensor row_M;     // of this rank's shard: those with a target, then fillers
  int64_t own = 0;      // of these, without fillers
  at::Tensor place_R;   // of all rows with a target, ascending: where they lie among all ranks' M rows
  at::Tensor target_R;  // their targets
  at::Tensor given_RF;  // double: what the loss is given of them; undefined: nothing
  HeadRows teacher;     // of a model whose distribution is the target (LayerContext::distillation)
};
// `target_of_row` has the next token of each of the micro-batch's rows, or -1 where there is none (a
// sequence's last token, masked tokens, inert rows). `given`: as many figures for each that has one, row by
// row; may be empty. The same on all TP ranks. REQUIRES: a multiple of tp rows.
Targets targets(const std::vector<int64_t>& target_of_row, const TensorParallel& parallel,
                const at::Device& device, const std::vector<double>& given = {});

struct HeadResult {
  at::Tensor sums;   // of RowLosses::reported_R and its notes, [1 + K] double on the layers' device; the same
                     // on every TP rank: count it once
  at::Tensor dx_SH;  // gradient of the loss
};

// One pass: the context's loss, gradient of x, and gradients of the final norm and the output matrix added to
// `gradients`.
HeadResult head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                 const at::Tensor& x_SH, const Targets& targets,
                                 const HeadParameters& gradients);

// The cross-entropy alone (evaluation) of each row with a target, [R] double; likewise the same everywhere.
at::Tensor head_losses(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                       const Targets& targets);

// The rows that a distillation needs of a teacher, in place of head_losses: the rows with a target, and the
// matrix as it is. Nothing is exchanged.
HeadRows head_rows(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                   const Targets& targets);

// All logits of rows that every TP rank has, the same on each: [rows, vocabulary], float or wider.
at::Tensor head_logits(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_RH);

// The rows of one chunk: as many as keep a rank's logits within context.logits_chunk_bytes, at least 64.
int64_t head_chunk_rows(const LayerContext& context, const HeadParameters& weights, int64_t logit_bytes);

}  // namespace sluice::layers
