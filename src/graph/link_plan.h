// Pull and push of one strategy, for all ranks. They depend on the strategy alone,
// not on the batch, so all step graphs of a strategy share one link plan. It lists
// no transfers: a rank that executes the graph makes its own (link::route_of_rank).
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
#include "link/whole_matrices.h"
#include "model/parameters.h"
#include "strategy/step_plan.h"
#include "strategy/topology.h"

namespace sluice::graph {

struct LinkPlan {
  // Elements that the busiest rank (between nodes: the busiest
  // network adapter, NIC) sends or receives, whichever is more.
  struct Busiest {
    int64_t inter_elements = 0;
    int64_t intra_elements = 0;
    std::vector<int64_t> beyond_elements =
        {};  // part of inter_elements that leaves larger groups, by group size
  };

  int world_size = 0;
  strategy::Topology topology;
  strategy::Strategy strategy;  // the pipelines that have micro-batches
  link::ComputeLayout layout;
  link::Rounds rounds;
  std::vector<int> round_of_bucket;  // inverse of `rounds`; -1: another trunk's bucket
  // Pull's moves, and push's: the same reversed if everything is trained.
  struct Way {
    std::vector<Busiest> busiest;    // by round
    std::vector<link::Volume> nics;  // by round: elements that NICs send and receive in pull's direction
  };
  Way pull, push;
  // Elements by rank, in owner slices and in compute shards:
  // all, and of these the trained and the encoded (codec) ones.
  struct Elements {
    int64_t all = 0;
    int64_t trained = 0;
    int64_t coded = 0;
  };
  std::vector<Elements> owned;
  std::vector<Elements> held;
  link::MatrixUpdate matrices;  // empty unless matrices are updated as a whole

  // A single node has no inter level.
  bool has_inter() const { return topology.nodes_of(world_size) > 1; }
  int nics() const { return topology.nic_of(world_size - 1) + 1; }
};

// The machine's properties that links depend on.
struct LinkMachine {
  int world_size = 1;
  strategy::Topology topology;
  bool whole_matrices = false;  // whether matrices are updated as a whole
  bool operator==(const LinkMachine&) const = default;
};

// Throws base::InputError when a scheme cannot cut the model.
LinkPlan link_plan(const model::ParameterTable& table, const strategy::Strategy& strategy,
                   const LinkMachine& machine);

constexpr int64_t kScalarBytes = 24;  // squared norm, loss sum and number of targets

// A round's bytes on each level, and their time.
struct RoundMoves {
  struct Level {
    int64_t bytes = 0;
    int64_t duration_ns = 0;
  };
  Level inter, intra;
};
RoundMoves pulled(const LinkPlan& links, size_t round, const cost::CostModel& cost);
RoundMoves pushed(const LinkPlan& links, size_t round, const cost::CostModel& cost);
// The time of a step's end: sums of scalars, then each rank's update.
int64_t scalars_ns(const LinkPlan& links, const cost::CostModel& cost);
// The time in which all ranks update whole matrices: while one round is iterated, the next one arrives; then
// the round's updates go home.
int64_t matrix_update_ns(const LinkPlan& links, const cost::CostModel& cost);
// Most bytes of a rank in it, beside what it has throughout the step.
int64_t matrix_update_bytes(const LinkPlan& links, const cost::MemoryModel& memory, int rank);
// A lower bound on a step's time beside its cells: the round that the first
// cell waits for, the round that waits for the last cell, and the step's end.
int64_t least_ns(const LinkPlan& links, const cost::CostModel& cost);

// The pipelines of a plan that have micro-batches. The others hold no parameters and take no part.
strategy::Strategy active_strategy(const strategy::StepPlan& plan);

// Link plans are kept for graphs that run, or for graphs that the clock alone reads. The latter have empty
// layouts, which would take most of their memory.
enum class LinkPlanUse : uint8_t { kRun, kClock };

// A cache of link plans by strategy. Thread-safe. Beyond so many plans a new one evicts all others.
class LinkPlans {
 public:
  explicit LinkPlans(LinkPlanUse use = LinkPlanUse::kRun) : use_(use) {}

  std::shared_ptr<const LinkPlan> of(const model::ParameterTable& table, const strategy::Strategy& strategy,
                                     const LinkMachine& machine);

 private:
  static constexpr size_t kMostToRun = 16, kMostToClock = 256;
  LinkPlanUse use_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const LinkPlan>> plans_;  // by canonical bytes
};

}  // namespace sluice::graph
