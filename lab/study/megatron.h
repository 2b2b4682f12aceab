// Megatron-LM: one static strategy for all batches, the best by enumeration. First-fit decreasing makes
// micro-batches, with a part of each sequence on every lane of a pipeline; 1F1B without a split backward. For
// mixtures of experts, expert parallelism is a degree of its own that divides data and context parallel
// ranks, and full recompute is tried, too. Neighbouring ranks then divide experts and hold all else whole, so
// the ranks of one expert group run their micro-batches together.
#pragma once

#include <memory>

#include "published/static_strategy.h"
#include "study/system.h"

namespace sluice::study {

// Micro-batches are dealt round robin, as the framework does.
std::unique_ptr<System> make_megatron(const SystemInputs& inputs);
// A careful variant: the most work goes to the pipeline with the least. Stronger than the published system.
std::unique_ptr<System> make_static(const SystemInputs& inputs);

// With a given choice. REQUIRES: it holds the context.
std::unique_ptr<System> make_megatron(const SystemInputs& inputs, const published::StaticStrategy& choice);

}  // namespace sluice::study
