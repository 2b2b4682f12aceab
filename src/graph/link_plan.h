// What pull and push of one strategy come to for all ranks. It depends on the strategy alone, not on the
// batch, so it is made once a strategy and shared by all its step graphs. It lists no transfers: a rank that
// executes the graph makes its own (link::route_of_rank).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cost/cost_model.h"
#include "link/layout.h"
#include "link/route.h"
#include "model/parameters.h"
#include "strategy/step_plan.h"
#include "strategy/topology.h"

namespace sluice::graph {

struct LinkPlan {
  // Elements that the busiest rank, or between nodes the busiest network adapter (NIC), sends or receives,
  // whichever is more.
  struct Busiest {
    int64_t inter_elements = 0;
    int64_t intra_elements = 0;
    std::vector<int64_t> beyond_elements =
        {};  // of inter_elements, what leaves larger groups, by size of these
  };

  int world_size = 0;
  strategy::Topology topology;
  strategy::Strategy strategy;  // the pipelines at work
  link::ComputeLayout layout;
  link::Rounds rounds;
  std::vector<int> round_of_bucket;  // rounds the other way round; -1: of another trunk
  // What pull moves; and push, which is the same reversed where everything is trained.
  struct Way {
    std::vector<Busiest> busiest;    // by round
    std::vector<link::Volume> nics;  // by round: what each NIC sends and receives in pull's direction
  };
  Way pull, push;
  // By rank, all and of these those that are trained, and those that are coded: what it owns, and its compute
  // shards.
  struct Elements {
    int64_t all = 0;
    int64_t trained = 0;
    int64_t coded = 0;
  };
  std::vector<Elements> owned;
  std::vector<Elements> held;

  // One node has no inter level.
  bool has_inter() const { return topology.nodes_of(world_size) > 1; }
  int nics() const { return topology.nic_of(world_size - 1) + 1; }
};

// The machine as links see it.
struct LinkMachine {
  int world_size = 1;
  strategy::Topology topology;
  bool operator==(const LinkMachine&) const = default;
};

// Throws base::InputError when a scheme cannot cut the model.
LinkPlan link_plan(const model::ParameterTable& table, const strategy::Strategy& strategy,
                   const LinkMachine& machine);

constexpr int64_t kScalarBytes = 24;  // squared norm, loss sum and number of targets

// What a round moves on each level, and what that takes.
struct RoundMoves {
  struct Level {
    int64_t bytes = 0;
    int64_t duration_ns = 0;
  };
  Level inter, intra;
};
RoundMoves pulled(const LinkPlan& links, size_t round, const cost::CostModel& cost);
RoundMoves pushed(const LinkPlan& links, size_t round, const cost::CostModel& cost);
// What closes a step: sums of figures, then each rank's update.
int64_t scalars_ns(const LinkPlan& links, const cost::CostModel& cost);
// What a step takes at least beside its cells: the round that the first waits for, the one that waits for the
// last, and what closes it.
int64_t least_ns(const LinkPlan& links, const cost::CostModel& cost);

// The pipelines of a plan that have micro-batches. The others hold no parameters and take no part.
strategy::Strategy active_strategy(const strategy::StepPlan& plan);

// Link plans by strategy. Thread-safe. Holds a few: a new one beyond `kMost` drops the others.
class LinkPlans {
 public:
  std::shared_ptr<const LinkPlan> of(const model::ParameterTable& table, const strategy::Strategy& strategy,
                                     const LinkMachine& machine);

 private:
  static constexpr size_t kMost = 16;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const LinkPlan>> plans_;  // by canonical bytes
};

}  // namespace sluice::graph
