// The value of each seed and rule of packing and search, on batches of real lengths: mean step time without
// it over that with all. The table also has the planning time that each takes. Usage:
//
//   ablation_bench [DATA_FOLDER [BATCHES [GPUS [CANDIDATES [TOKENS]]]]]
//
// CANDIDATES: a folder of strategies as planner_bench keeps them. TOKENS: size of a batch, if not the
// cluster's: some seeds are for batches of few sequences.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "cases.h"
#include "inputs.h"
#include "plan/planner.h"

namespace {

using namespace sluice;

constexpr size_t kSeeds = plan::kSeedNames.size();

// Sums over a case's batches: with all seeds and rules, then without each.
struct Line {
  std::string name;
  std::array<double, kSeeds + 1> step_ns{};
  std::array<double, kSeeds + 1> planning_ms{};
};

Line measure(const bench::Case& of, const std::vector<strategy::Strategy>& candidates, int batches) {
  const cost::CostModel cost = bench::cost_of(of.model, of.machine.gpus);
  Line line{.name = of.name()};
  for (size_t left_out = 0; left_out <= kSeeds; ++left_out) {
    plan::PlannerOptions options{.world_size = of.machine.gpus, .candidates = candidates};
    if (left_out > 0) options.seeds = options.seeds.without(static_cast<plan::Seed>(left_out - 1));
    const plan::Planner planner(options, cost);
    base::Rng rng(7, static_cast<uint64_t>(of.machine.gpus));
    for (int step = 0; step < batches; ++step) {
      const bench::Timed timed =
          bench::timed(planner, step, bench::draw(of.lengths, of.machine.batch_tokens, rng));
      line.step_ns[left_out] += static_cast<double>(timed.plan.estimated_ns);
      line.planning_ms[left_out] += timed.ms;
    }
  }
  return line;
}

void print(const std::vector<Line>& lines) {
  std::printf(
      "\n| without | step, mean %% | step, most %% | where | planning time %% |\n|---|---|---|---|---|\n");
  for (size_t seed = 1; seed <= kSeeds; ++seed) {
    double sum = 0, most = -1e9, before_ms = 0, after_ms = 0;
    std::string where;
    for (const Line& line : lines) {
      const double more = 100 * (line.step_ns[seed] / line.step_ns[0] - 1);
      sum += more;
      if (more > most) where = line.name;
      most = std::max(most, more);
      before_ms += line.planning_ms[0];
      after_ms += line.planning_ms[seed];
    }
    std::printf("| %s | %+.3f | %+.3f | %s | %+.0f |\n", plan::kSeedNames[seed - 1],
                sum / static_cast<double>(lines.size()), most, where.c_str(),
                100 * (after_ms / before_ms - 1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int batches = argc > 2 ? std::atoi(argv[2]) : 10;
  const std::string gpus = argc > 3 ? argv[3] : "64";
  const std::string kept = argc > 4 ? argv[4] : "";
  std::vector<Line> lines;
  for (bench::Case& of : bench::cases(folder, kept)) {
    if (argc > 5) of.machine.batch_tokens = std::atoll(argv[5]);
    if (gpus != "all" && gpus != base::text(of.machine.gpus)) continue;
    const std::vector<strategy::Strategy> candidates = bench::candidates_of(of);
    if (candidates.empty()) continue;
    lines.push_back(measure(of, candidates, batches));
    std::fprintf(stderr, "%s: %.1f ms\n", lines.back().name.c_str(), lines.back().planning_ms[0] / batches);
  }
  print(lines);
}
