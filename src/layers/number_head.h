// A head of numbers on one TP rank (model::HeadKind): the final norm, and of each row that has a target, or
// of the mean of its sequence (model::Pooling), a few numbers by matrices that every rank has whole, or the
// normed rows themselves. A rank works on its own rows; numbers alone are gathered, so that all ranks find
// the same losses.
#pragma once

#include "layers/head.h"
#include "layers/row_layout.h"

namespace sluice::layers {

// Of rows with a target, in their order: [R, K] double on the layers' device, the same on every TP rank.
// Where means are taken, all lanes that share sequences call it at once.
at::Tensor head_numbers(const LayerContext& context, const HeadParameters& weights, const at::Tensor& x_SH,
                        const Targets& targets, const SequenceRows& sequences);

// As head_forward_backward, of the context's number_loss; likewise. REQUIRES: there is one.
HeadResult number_head_forward_backward(const LayerContext& context, const HeadParameters& weights,
                                        const at::Tensor& x_SH, const Targets& targets,
                                        const SequenceRows& sequences, const HeadParameters& gradients);

}  // namespace sluice::layers
