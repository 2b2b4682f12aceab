// plan_fuzz --count N --seed S [--threads]: random heterogeneous plans become step graphs that are proved and
// then run, in virtual time under random delays or with real threads over the in-process transport. No case
// may deadlock; without delays the interpreter's makespan is the clock's; a graph with two nodes swapped is
// refused, and the swap's cycle is reported by the interpreter. Exit status 1 with the first case that fails.
#include <cstdint>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "graph/clock.h"
#include "graph/testing.h"
#include "graph/verifier.h"
#include "graph_on_fake.h"

namespace sluice::fuzz {
namespace {

using base::text;
using graph::StepGraph;

struct Options {
  int64_t count = 500;
  int64_t seed = 1;
  bool threads = false;
};

struct Totals {
  int64_t nodes = 0;
  int64_t local = 0;  // cases without admission over ranks: their makespan must be the clock's
  int64_t cycles = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--threads") {
      options.threads = true;
      continue;
    }
    const auto value = i + 1 < argc ? base::parse_integer(argv[++i]) : std::nullopt;
    if (!value || (name != "--count" && name != "--seed")) {
      throw base::InputError("usage: plan_fuzz [--count N] [--seed S] [--threads]");
    }
    (name == "--count" ? options.count : options.seed) = *value;
  }
  return options;
}

void require(bool condition, const std::string& fault) {
  if (!condition) throw base::RunError(fault);
}

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

void run_case(uint64_t seed, const Options& options, Totals& totals) {
  const int max_lanes = static_cast<int>(seed % 3) + 1;
  const auto random = graph::testing::random_case(seed, {.max_lanes = max_lanes});
  const StepGraph graph = graph::build(random.plan, random.table, random.cost, random.world_size);
  totals.nodes += static_cast<int64_t>(graph.nodes.size());
  if (options.threads) {
    const std::string failure = run_on_threads(graph, seed);
    require(failure.empty(), failure);
  } else {
    totals.local += run_in_virtual_time(graph, seed) ? 1 : 0;
    refuse_a_swap(random, graph, totals);
  }
}

int run(const Options& options) {
  Totals totals;
  for (int64_t i = 0; i < options.count; ++i) {
    const auto seed = static_cast<uint64_t>(options.seed + i);
    try {
      run_case(seed, options, totals);
    } catch (const std::exception& error) {
      std::cerr << "case " << seed << ": " << error.what() << "\n";
      return 1;
    }
  }
  std::cout << options.count << " plans, " << totals.nodes << " nodes, 0 deadlocks; " << totals.local
            << " makespans equal to the clock's, " << totals.cycles << " swaps refused with their cycle\n";
  return 0;
}

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  try {
    return sluice::fuzz::run(sluice::fuzz::parse(argc, argv));
  } catch (const sluice::base::Error& error) {
    std::cerr << error.what() << "\n";
    return error.exit_status();
  }
}
