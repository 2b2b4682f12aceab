// A head of numbers on one TP rank (model::HeadKind), for instance a classifier or a critic. The head uses
// each row with a target, or the mean of that row's sequence (model::Pooling), after the final norm. Results
// are a few numbers by matrices that every rank has whole, or the normed rows themselves. A rank works on its
// own rows and all-gathers numbers alone, so that all ranks compute the same losses.
#pragma once

#include "layers/head.h"
#include "layers/row_layout.h"

namespace sluice::layers {

// Numbers of the rows with a target, in order: [R, K] double on the layers' device, the same on every TP
// rank. If means are taken, the call is collective over all lanes that share sequences.
at::Tensor head_numbers(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                        const Targets& targets, const SequenceRows& sequences);

// As head_forward_backward, with the context's number_loss; collective as above. REQUIRES: number_loss.
HeadResult number_head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                        const at::Tensor& x_SH, const Targets& targets,
                                        const SequenceRows& sequences, const HeadParameters& gradients);

}  // namespace sluice::layers
