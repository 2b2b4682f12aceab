// Lane parts as plan.json lists them, lane by lane, and the micro-batches that they come from.
#pragma once

#include <optional>
#include <vector>

#include "strategy/step_plan.h"

namespace sluice::strategy {

struct ListedLanePart {
  std::optional<int> micro_batch;  // the same on all lanes of a micro-batch of several
  std::vector<Piece> pieces;
  Exchange exchange = Exchange::kRing;
  int nested_lanes = 0;
  MemoryPolicy memory;
  std::optional<int> pass = std::nullopt;
};

// The micro-batches behind these lists, in the order of injection. InputError naming the first lane part that
// no micro-batch makes: one without ring that does not hold whole sequences; a ring that does not stand on a
// contiguous run of lanes, once on each, whose lanes do not agree, or whose pieces are not those of
// Unit::pieces_on but for whole sequences anywhere between them (exchanged heads: no others); rings that
// cross. `pipeline` is named in errors.
std::vector<PipelineMicroBatch> micro_batches_of(const std::vector<std::vector<ListedLanePart>>& lanes,
                                                 const std::vector<Sequence>& sequences, size_t pipeline);

}  // namespace sluice::strategy
