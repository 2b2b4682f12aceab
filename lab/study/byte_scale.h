// ByteScale (arXiv 2502.21231) in the steps of its ablation: one pipeline of all ranks, whose lanes replace
// data and context parallelism (published/byte_scale.h). The first step is the static run that it is compared
// with.
#pragma once

#include <cstdint>
#include <memory>

#include "published/lane_offload.h"
#include "published/static_strategy.h"
#include "study/lane_layout.h"
#include "study/system.h"

namespace sluice::study {

// kLanes: a sequence takes as many lanes as its length needs (Algorithm 1). kBalance: lanes are balanced over
// time (Algorithm 2: DP-balance with one stage, else PP-balance).
enum class ByteScaleStep : uint8_t { kLanes, kBalance };

// Uses lanes whose micro-batches hold layout.tokens (C). InfeasibleError if all lanes together do not hold
// the context.
std::unique_ptr<System> make_byte_scale(const SystemInputs& inputs, ByteScaleStep step,
                                        const LaneLayout& layout,
                                        published::OffloadRule offload = published::OffloadRule::kNone);

// ByteScale's steps, each on its best layout by enumeration: dynamic lanes; with selective offload
// (published::OffloadRule::kLeastWork, lanes of one stage); and with balance, too.
std::unique_ptr<System> make_byte_scale_lanes(const SystemInputs& inputs);
std::unique_ptr<System> make_byte_scale_offload(const SystemInputs& inputs);
std::unique_ptr<System> make_byte_scale_balance(const SystemInputs& inputs);

// Static context parallelism: CP is the least power of two whose lanes hold the context, for all sequences.
// Packs as long as the context are dealt to the replicas round robin. InfeasibleError if they don't fit.
published::StaticStrategy static_cp(const SystemInputs& inputs, const LaneLayout& layout);

}  // namespace sluice::study
