// Megatron-LM: one static strategy for all batches, the best by enumeration. First-fit decreasing makes
// micro-batches, every lane of a pipeline holding its share of each sequence; 1F1B without a split backward.
// Of mixtures of experts also with expert parallelism as a degree of its own, which divides data and context
// parallel ranks, and with full recompute: neighbouring ranks divide experts and hold all else whole, so
// those that are in one expert group go through their micro-batches together.
#pragma once

#include <memory>

#include "published/static_strategy.h"
#include "study/system.h"

namespace sluice::study {

// Micro-batches are dealt in turns, as the framework does.
std::unique_ptr<System> make_megatron(const SystemInputs& inputs);
// The same by a careful hand: the most work to the pipeline with the least. Stronger than what is published.
std::unique_ptr<System> make_static(const SystemInputs& inputs);

// With a choice that is given. REQUIRES: it holds the context.
std::unique_ptr<System> make_megatron(const SystemInputs& inputs, const published::StaticStrategy& choice);

}  // namespace sluice::study
