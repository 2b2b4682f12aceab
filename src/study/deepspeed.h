// DeepSpeed: static data parallelism over groups of ranks that cut sequences with Ulysses, ZeRO, and
// activation recompute where that pays. Degrees, stage of ZeRO and recompute are the best by enumeration; the
// group's size divides the heads. First-fit decreasing makes micro-batches, dealt to the groups in turns.
//
// From stage 2 on ZeRO's collectives take part in every micro-batch on all ranks, so groups start and end
// micro-batches together: each lasts as long as its slowest group, or as the collectives where those take
// longer. All-to-alls and collectives go over the same links one after the other; all computation hides the
// collectives (layers overlap perfectly), and nothing waits within a micro-batch, which is kind. Pull and
// push run in Sluice's rounds.
#pragma once

#include <cstdint>
#include <memory>

#include "study/system.h"

namespace sluice::study {

std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs);
// With a group size, recompute and packs that are given, and the lowest stage of ZeRO that holds the context;
// InfeasibleError where none does. REQUIRES: packs no longer than the context.
std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs, int group_ranks, bool recompute,
                                       int64_t pack_tokens);

}  // namespace sluice::study
