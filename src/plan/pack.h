// The second stage of assignment: packs one pipeline's sequences into micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "plan/packing.h"

namespace sluice::plan {

struct PackedPipeline {
  strategy::PipelinePlan plan;
  int64_t makespan_ns = 0;  // under the schedule that will run
};

// Packs `sequences` (indices into `lengths`, not places) for `pipeline`. A packing always exists; nothing
// if no packing found ends below options.below_ns. REQUIRES: every length <= scheme.max_len_tokens().
std::optional<PackedPipeline> pack(const strategy::Pipeline& pipeline, const SchemeCost& scheme,
                                   std::span<const int64_t> lengths, std::span<const int> sequences,
                                   const PackOptions& options = {});

}  // namespace sluice::plan
