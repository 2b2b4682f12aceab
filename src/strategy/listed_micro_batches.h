// Micro-batches as plan.json lists them, lane by lane, and the units that they come from.
#pragma once

#include <optional>
#include <vector>

#include "strategy/step_plan.h"

namespace sluice::strategy {

struct ListedMicroBatch {
  std::optional<int> ring;  // the same on all lanes of a unit of several
  std::vector<Piece> pieces;
  Exchange exchange = Exchange::kRing;
  int nested_lanes = 0;
  MemoryPolicy memory;
  std::optional<int> pass = std::nullopt;
};

// The units behind these lists, in the order of injection. InputError naming the first micro-batch that no
// unit makes: one without ring that does not hold whole sequences; a ring that does not stand on a contiguous
// run of lanes, once on each, whose lanes do not agree, or whose pieces are not those of Unit::pieces_on but
// for whole sequences anywhere between them (exchanged heads: no others); rings that cross. `pipeline` is
// named in errors.
std::vector<Unit> units_of(const std::vector<std::vector<ListedMicroBatch>>& lanes,
                           const std::vector<Sequence>& sequences, size_t pipeline);

}  // namespace sluice::strategy
