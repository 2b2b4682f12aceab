// Final norm, output matrix and cross-entropy on one TP rank, fused: logits exist only for a chunk of rows
// at a time and are never made twice. The vocabulary is cut over the TP ranks, evenly or not.
//
// Only rows with a target are computed (the masked head of Shen et al., Long-VITA, 2025). They are taken out
// of the micro-batch before the norm, so the other rows cost the head no products, no transfers and no
// memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/context.h"
#include "layers/distillation.h"
#include "layers/parameters.h"

namespace sluice::layers {

// The rows that have a target, divided over the TP ranks as the micro-batch's rows are. All ranks contribute
// equally many rows to the all-gather. A rank with fewer repeats its shard's first row as a filler, whose
// results are ignored. Indices and targets are int64 on the layers' device.
struct Targets {
  at::Tensor row_M;                     // this rank's shard rows with a target, then fillers
  int64_t own = 0;                      // how many of row_M are no fillers
  at::Tensor place_R;                   // by row with a target, ascending: its place among all ranks' M rows
  at::Tensor target_R;                  // next tokens, in the same order
  at::Tensor given_RF;                  // double: the loss's figures for these rows; undefined: none
  std::vector<HeadRows> teachers = {};  // rows of each of the distillation's teachers
};
// `target_of_row`: the next token of each of the micro-batch's rows, or -1 if there is none (a sequence's
// last token, masked tokens, inert rows). `given`: equally many figures for each row with a target, row by
// row; may be empty. Both are the same on all TP ranks. REQUIRES: a multiple of tp rows.
Targets targets(const std::vector<int64_t>& target_of_row, const TensorParallel& parallel,
                const at::Device& device, const std::vector<double>& given = {});

struct HeadResult {
  at::Tensor sums;   // [1 + K] double on the layers' device: sums of RowLosses::reported_R and its notes, the
                     // same on every TP rank: count them once
  at::Tensor dx_SH;  // gradient of the loss
};

// One pass over the rows: the context's loss and the gradient of x. Adds the gradients of the final norm and
// the output matrix to `gradients`.
HeadResult head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                 const at::Tensor& x_SH, const Targets& targets,
                                 const HeadParameters& gradients);

// Evaluation: the cross-entropy of each row with a target, [R] double, the same on every TP rank.
at::Tensor head_losses(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                       const Targets& targets);

// A teacher's rows for distillation, in place of head_losses: the rows with a target, and the output matrix
// as it is. No communication.
HeadRows head_rows(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                   const Targets& targets);

// All logits of rows that every TP rank has: [rows, vocabulary], float or wider, the same on each rank.
at::Tensor head_logits(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_RH);

// Rows per chunk: as many as keep a rank's logits within context.logits_chunk_bytes, but at least 64.
int64_t head_chunk_rows(const LayerContext& context, const HeadParameters& weights, int64_t logit_bytes);

}  // namespace sluice::layers
