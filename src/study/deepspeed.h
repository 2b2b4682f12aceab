// DeepSpeed: static data parallelism over groups of ranks that cut sequences with Ulysses, ZeRO, and
// activation recompute where that pays. Degrees, stage of ZeRO and recompute are the best by enumeration; the
// group's size divides the heads. First-fit decreasing makes micro-batches, dealt to the groups in turns.
//
// Given to it for nothing: ZeRO's collectives of a micro-batch overlap with its computation perfectly, groups
// do not wait for one another between micro-batches, and pull and push run in Sluice's rounds.
#pragma once

#include <memory>

#include "study/system.h"

namespace sluice::study {

std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs);
// With a group size and recompute that are given, packs as long as the context, and the lowest stage of ZeRO that
// holds it; InfeasibleError where none does.
std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs, int group_ranks, bool recompute);

}  // namespace sluice::study
