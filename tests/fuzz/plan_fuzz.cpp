// plan_fuzz --count N --seed S [--threads]: random heterogeneous plans become step graphs that are proved and
// then run, in virtual time under random delays or with real threads over the in-process transport. No case
// may deadlock; without delays the interpreter's makespan is the clock's; a graph with two nodes swapped is
// refused, and the swap's cycle is reported by the interpreter. Exit status 1 with the first case that fails.
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "graph/clock.h"
#include "graph/test_graphs.h"
#include "graph/verifier.h"
#include "graph_on_fake.h"
#include "program.h"

namespace sluice::fuzz {
namespace {

using base::text;
using graph::StepGraph;

constexpr const char* kThreads = "--threads";

struct Totals {
  int64_t nodes = 0;
  int64_t local = 0;  // cases without admission over ranks: their makespan must be the clock's
  int64_t cycles = 0;
};

// Exchanges the first two world exchanges of one level in one rank's program.
void refuse_a_swap(const graph::testing::RandomCase& random, StepGraph graph, Totals& totals) {
  std::vector<int>& program = graph.programs.back();
  int* first = nullptr;
  for (int& id : program) {
    if (graph.node(id).kind != graph::NodeKind::kPullIntra) continue;
    if (first == nullptr) {
      first = &id;
      continue;
    }
    std::swap(*first, id);
    require(!graph::faults(graph, random.table, random.cost).empty(),
            "the verifier accepts two swapped nodes");
    if (graph.world_size == 1) return;
    const auto result = comm::run_virtually(virtual_program(graph), {});
    require(result.deadlock.find("pull-intra r0") != std::string::npos,
            text("the interpreter does not report the cycle: '", result.deadlock, "'"));
    ++totals.cycles;
    return;
  }
}

void run_case(const Cases& cases, uint64_t seed, Totals& totals) {
  const int max_lanes = static_cast<int>(seed % 3) + 1;
  const auto random = graph::testing::random_case(seed, {.max_lanes = max_lanes, .policies = true});
  const StepGraph graph = graph::build(random.plan, random.table, random.cost, random.world_size);
  totals.nodes += static_cast<int64_t>(graph.nodes.size());
  if (cases.flags.contains(kThreads)) {
    const std::string failure = run_on_threads(graph, seed);
    require(failure.empty(), failure);
  } else {
    totals.local += run_in_virtual_time(graph, seed) ? 1 : 0;
    refuse_a_swap(random, graph, totals);
  }
}

std::string summary(const Cases& cases, const Totals& totals) {
  return text(cases.count, " plans, ", totals.nodes, " nodes, 0 deadlocks; ", totals.local,
              " makespans equal to the clock's, ", totals.cycles, " swaps refused with their cycle");
}

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  using namespace sluice::fuzz;
  Totals totals;
  return run_program({.name = "plan_fuzz",
                      .count = 500,
                      .flags = {kThreads},
                      .run_case = [&](const Cases& cases, uint64_t seed) { run_case(cases, seed, totals); },
                      .summary = [&](const Cases& cases) { return summary(cases, totals); }},
                     argc, argv);
}
