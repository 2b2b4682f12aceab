// DeepSpeed: static data parallelism over groups of ranks that cut sequences with Ulysses, ZeRO, and full
// recompute where that pays; of mixtures of experts DeepSpeed-MoE's expert parallelism beside the first two
// stages. The group's size divides the heads. First-fit decreasing makes micro-batches,
// dealt to the groups in turns. Size, stage of ZeRO, recompute and length of packs are the best by
// enumeration.
//
// FSDP with context parallelism as torchtitan runs it: the same with a ring in place of Ulysses, TP inside
// nodes, HSDP beside full sharding, and selective recompute (strategy::MemoryPolicy::recompute) beside full.
// One stage. Experts are gathered, or divided by neighbouring ranks.
//
// FlexSP: groups of different sizes at once (published/flex_sp.h), its stage of ZeRO and recompute by
// enumeration.
//
// Their plans are of our types: from ZeRO-3 on all ranks share parameters (S = CP), and a micro-batch is a
// pass. So layers are gathered and summed in each, one layer ahead, and groups wait for one another at every
// layer's pass; ZeRO-1 is S = 1. Pull and push run in Sluice's rounds, which is kind to them.
#pragma once

#include <cstdint>
#include <memory>

#include "published/flex_sp.h"
#include "study/system.h"

namespace sluice::study {

// InfeasibleError where nothing holds the context.
std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs);
std::unique_ptr<System> make_fsdp(const SystemInputs& inputs);
std::unique_ptr<System> make_flexsp(const SystemInputs& inputs);
// The same with groups that a solver may improve. The ZeRO stage is chosen with the search's groups.
std::unique_ptr<System> make_flexsp(const SystemInputs& inputs, published::ImproveGroups improve);

// DeepSpeed with a group size, recompute and packs that are given, and the lowest stage of ZeRO that holds
// the context. REQUIRES: packs no longer than the context.
std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs, int group_ranks, bool recompute,
                                       int64_t pack_tokens);

}  // namespace sluice::study
