// DeepSpeed: static data parallelism over groups of ranks that cut sequences with Ulysses, ZeRO, and
// full recompute if that pays; for mixtures of experts, DeepSpeed-MoE's expert parallelism with the
// first two ZeRO stages. The group's size divides the heads. First-fit decreasing makes micro-batches,
// dealt to the groups round robin. Group size, ZeRO stage, recompute and pack length are the best by
// enumeration.
//
// FSDP with context parallelism as in torchtitan: the same with a ring in place of Ulysses, TP inside nodes,
// HSDP beside full sharding, and selective recompute (strategy::MemoryPolicy::recompute) beside full. One
// stage. Experts are gathered, or divided by neighbouring ranks.
//
// FlexSP: groups of different sizes at once (published/flex_sp.h), with ZeRO stage and recompute by
// enumeration.
//
// Their plans have our types. From ZeRO-3 on, all ranks share parameters (S = CP) and a micro-batch is a
// pass: each layer is all-gathered and reduce-scattered in it, one layer ahead, and groups wait for one
// another. ZeRO-1 is S = 1. Pull and push run in Sluice's transfer rounds, which favours these systems.
#pragma once

#include <cstdint>
#include <memory>

#include "published/flex_sp.h"
#include "study/system.h"

namespace sluice::study {

// InfeasibleError if no configuration holds the context.
std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs);
std::unique_ptr<System> make_fsdp(const SystemInputs& inputs);
std::unique_ptr<System> make_flexsp(const SystemInputs& inputs);
// FlexSP with groups that a solver may improve. The ZeRO stage is chosen with the search's groups.
std::unique_ptr<System> make_flexsp(const SystemInputs& inputs, published::ImproveGroups improve);

// DeepSpeed with the given group size, recompute and packs, and the lowest ZeRO stage that holds the context.
// REQUIRES: packs no longer than the context.
std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs, int group_ranks, bool recompute,
                                       int64_t pack_tokens);

}  // namespace sluice::study
