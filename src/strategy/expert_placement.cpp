#include "strategy/expert_placement.h"

#include <algorithm>

#include "base/text.h"

namespace sluice::strategy {

std::span<const int> ExpertPlacement::of_lane(int64_t layer, int lanes, int lane) const {
  if (layer < 0) return {};
  const std::vector<int>& seats = layers[static_cast<size_t>(layer)];
  const size_t own = seats.size() / static_cast<size_t>(lanes);
  return std::span(seats).subspan(own * static_cast<size_t>(lane), own);
}

void ExpertPlacement::add_to(base::CanonicalBytes& bytes) const {
  for (const std::vector<int>& seats : layers) {
    bytes.add(static_cast<int64_t>(seats.size()));
    for (const int expert : seats) bytes.add(int64_t{expert});
  }
}

std::string placement_fault(const ExpertPlacement& placement, int lanes) {
  for (size_t layer = 0; layer < placement.layers.size(); ++layer) {
    const std::vector<int>& seats = placement.layers[layer];
    if (seats.size() % static_cast<size_t>(lanes) != 0)
      return base::text("layer ", layer, " has ", seats.size(), " expert slots on ", lanes, " lanes");
    for (int lane = 0; lane < lanes; ++lane) {
      const std::span<const int> own = placement.of_lane(static_cast<int64_t>(layer), lanes, lane);
      if (std::ranges::adjacent_find(own, std::ranges::greater_equal()) == own.end()) continue;
      return base::text("layer ", layer, ": the experts of lane ", lane, " are not in ascending order");
    }
    std::vector<int> all = seats;
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    for (size_t expert = 0; expert < all.size(); ++expert) {
      if (all[expert] == static_cast<int>(expert)) continue;
      return base::text("layer ", layer, ": expert ", expert, " lies on no lane");
    }
  }
  return "";
}

}  // namespace sluice::strategy
