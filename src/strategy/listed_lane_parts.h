// Conversion of lane parts, as plan.json lists them lane by lane, to the micro-batches that they come from.
#pragma once

#include <optional>
#include <vector>

#include "strategy/step_plan.h"

namespace sluice::strategy {

struct ListedLanePart {
  std::optional<int> micro_batch;  // the micro-batch's number if it has several lanes, the same on all
  std::vector<Piece> pieces;
  Exchange exchange = Exchange::kRing;
  int nested_lanes = 0;
  MemoryPolicy memory;
  std::optional<int> pass = std::nullopt;
};

// The micro-batches behind these lists, in the order of injection; errors name `pipeline`. InputError naming
// the first lane part that fits no micro-batch. A part without a number must hold whole sequences. Parts with
// one number must lie on two or more contiguous lanes, once on each, and agree in exchange, memory policy and
// pass. Their pieces must be those of PipelineMicroBatch::pieces_on, except that whole sequences may stand
// anywhere between them. Micro-batches must not cross.
std::vector<PipelineMicroBatch> micro_batches_of(const std::vector<std::vector<ListedLanePart>>& lanes,
                                                 const std::vector<Sequence>& sequences, size_t pipeline);

}  // namespace sluice::strategy
