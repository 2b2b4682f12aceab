// Which experts lie on which lanes of an expert group, where that is not even parts in their order.
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
  // By layer of the model its seats: lane by lane the experts of each, ascending, as many of every lane. An
  // expert may have seats on several lanes. None of a layer without experts.
  std::vector<std::vector<int>> layers;

  // Of a layer the experts of one of so many lanes; none of a layer without experts, and of the model's ends,
  // whose layer is -1.
  std::span<const int> of_lane(int64_t layer, int lanes, int lane) const;
  void add_to(base::CanonicalBytes& bytes) const;
  bool operator==(const ExpertPlacement&) const = default;
};

// What is wrong with it for so many lanes, with the layer; "" where nothing is. Experts are numbered from 0,
// without gaps.
std::string placement_fault(const ExpertPlacement& placement, int lanes);

// By how many lanes divide experts.
using ExpertPlacements = std::map<int, std::shared_ptr<const ExpertPlacement>>;

}  // namespace sluice::strategy
