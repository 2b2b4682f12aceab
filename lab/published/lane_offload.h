// The number of lanes for a long sequence if a part of its activations may wait in host memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "plan/offload.h"
#include "published/lane_reference.h"

namespace sluice::published {

// With kFewestLanes (eq. 3 of ByteScale), the share is the largest whose copies a layer's forward hides. With
// kLeastWork, shares up to that one are tried in steps of a twentieth, for the least total lane time. Lanes
// must end within a lane's mean work; if no share allows that, the share that ends soonest is taken.
enum class OffloadRule : uint8_t { kNone, kFewestLanes, kLeastWork };

struct LaneCut {
  int lanes = 1;
  strategy::MemoryPolicy memory;
};

// The constructor's arguments must outlive it.
class LaneOffload {
 public:
  LaneOffload(OffloadRule rule, const LaneReference& reference, std::span<const int64_t> lengths,
              const cost::CostModel& cost, int world_size);

  // A sequence that fits a micro-batch of one lane offloads nothing. A share never saves lanes at the cost of
  // memory: the micro-batch fits beside the others of its lanes.
  LaneCut cut(int64_t length) const;

 private:
  plan::OffloadProblem problem(int64_t length) const;
  LaneCut cut_with(const plan::OffloadProblem& problem, int64_t length, int permille) const;
  LaneCut of_least_work(const plan::OffloadProblem& problem, int64_t length, int most_permille) const;
  // Tokens of one sequence that a lane's memory holds under the share.
  int64_t most_tokens(int permille) const;

  OffloadRule rule_;
  const LaneReference& reference_;
  const cost::CostModel& cost_;
  int world_size_;
  int64_t mean_ns_ = 0;                         // all work, divided by the number of lanes
  mutable std::map<int, int64_t> most_tokens_;  // cache, by share
};

}  // namespace sluice::published
