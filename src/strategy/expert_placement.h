// The experts of each lane of an expert group, where lanes do not simply hold even parts in order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace sluice::strategy {

struct ExpertPlacement {
  // Expert slots by layer of the model, lane by lane: each lane has equally many, ascending. An expert may
  // have slots on several lanes. Layers without experts have an empty list.
  std::vector<std::vector<int>> layers;

  // The experts of a layer on lane `lane` of `lanes`. Empty for layers without experts, and for the embedding
  // and the head, whose layer is -1.
  std::span<const int> of_lane(int64_t layer, int lanes, int lane) const;
  void add_to(base::CanonicalBytes& bytes) const;
  bool operator==(const ExpertPlacement&) const = default;
};

// Says in words, with the layer, why the placement does not suit `lanes` lanes; "" if it does. Experts are
// numbered from 0 without gaps.
std::string placement_fault(const ExpertPlacement& placement, int lanes);

// Placements by EP degree.
using ExpertPlacements = std::map<int, std::shared_ptr<const ExpertPlacement>>;

}  // namespace sluice::strategy
