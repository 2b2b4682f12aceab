#include "study/least_work.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"

namespace sluice::study {
namespace {

// Times summed over all ranks, one for each scheme.
std::vector<cost::Quadratic> rank_times(std::span<const cost::CostModel> models, int world_size) {
  std::vector<cost::Quadratic> times;
  for (const cost::CostModel& model : models) {
    for (const strategy::Scheme& scheme : model.schemes(world_size)) {
      cost::Quadratic all;
      for (int stage = 0; stage < scheme.pp; ++stage) all += model.stage_times(scheme, stage);
      times.push_back(all.times(scheme.tp));
    }
  }
  return times;
}

}  // namespace

int64_t least_work_ns(std::span<const int64_t> lengths, std::span<const cost::CostModel> models,
                      int world_size) {
  const std::vector<cost::Quadratic> times = rank_times(models, world_size);
  SLUICE_ASSERT(!times.empty() && world_size >= 1, "no scheme to take the least of");
  cost::Wide total = 0;  // fixed point
  for (const int64_t length : lengths) {
    const cost::Work work = cost::Work::of({&length, 1}, models.front().window());
    std::optional<cost::Wide> least;
    for (const cost::Quadratic& of : times) {
      const cost::Wide next = of.of_work_fixed(work);
      if (!least || next < *least) least = next;
    }
    total += *least;
  }
  return static_cast<int64_t>((total >> cost::Quadratic::kFractionBits) / world_size);
}

}  // namespace sluice::study
