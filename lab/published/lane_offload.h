// How many lanes a long sequence takes when a part of its activations may wait in host memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "plan/offload.h"
#include "published/lane_reference.h"

namespace sluice::published {

// kFewestLanes: eq. 3 of ByteScale, as many lanes as the largest share needs whose copies a layer's forward
// hides. kLeastWork: of the shares up to that one, in steps of a twentieth, the one whose lanes are busy for
// the least time in all, if each ends within the mean work of a lane; where none does, the soonest.
enum class OffloadRule : uint8_t { kNone, kFewestLanes, kLeastWork };

struct LaneCut {
  int lanes = 1;
  strategy::MemoryPolicy memory;
};

// What it is made from must outlive it.
class LaneOffload {
 public:
  LaneOffload(OffloadRule rule, const LaneReference& reference, std::span<const int64_t> lengths,
              const cost::CostModel& cost, int world_size);

  // A sequence that fills no micro-batch of a lane keeps all. A share never saves lanes at the cost of
  // memory: the micro-batch fits beside the others of its lanes.
  LaneCut cut(int64_t length) const;

 private:
  plan::OffloadProblem problem(int64_t length) const;
  LaneCut cut_with(const plan::OffloadProblem& problem, int64_t length, int permille) const;
  LaneCut of_least_work(const plan::OffloadProblem& problem, int64_t length, int most_permille) const;
  // What a lane's memory holds of one sequence under the share.
  int64_t most_tokens(int permille) const;

  OffloadRule rule_;
  const LaneReference& reference_;
  const cost::CostModel& cost_;
  int world_size_;
  int64_t mean_ns_ = 0;                         // of all work on one of all lanes
  mutable std::map<int, int64_t> most_tokens_;  // by share, as they are asked for
};

}  // namespace sluice::published
