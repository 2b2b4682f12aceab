// Planning time, gap to the proved bound, and our planner against the published algorithms, in one run
// without a GPU. Costs are the published calibrations of 7B, 13B and 32B models on A800s, and analytic costs
// on nodes of eight H100. Batches have real lengths; pipelines have one lane, up to eight, or the default
// options. Times are processor time of the planning thread.
//
//   planner_bench [DATA_FOLDER [BATCHES [MODEL [GPUS [LANES [CANDIDATES]]]]]]
//
// DATA_FOLDER: bench/data; MODEL and GPUS: "all"; LANES: "any". CANDIDATES: a folder that keeps what was
// proposed from one run to the next, so that two versions of the planner choose among the same strategies.
#include "plan/planner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "cases.h"
#include "published/paper_plan.h"
#include "schedule/pipeline_schedule.h"

namespace {

using namespace sluice;

// Checks a plan before it counts: it is valid, and its estimate is its schedule's time.
void check(const strategy::StepPlan& plan, const cost::CostModel& cost, int gpus) {
  strategy::validate(plan, gpus);
  int64_t last_ns = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    last_ns = std::max(
        last_ns, schedule::schedule_pipeline(schedule::pipeline_load(pipeline, cost, gpus)).makespan_ns);
  }
  SLUICE_ASSERT(last_ns == plan.estimated_ns && plan.lower_bound_ns <= plan.estimated_ns, "a wrong plan");
}

struct Series {
  std::vector<double> values;
  double mean() const {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  double quantile(double at) const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<size_t>(at * static_cast<double>(sorted.size() - 1) + 0.5)];
  }
};

double time_ns(const bench::Timed& of) { return static_cast<double>(of.plan.estimated_ns); }

void run(const bench::Case& of, int batches) {
  const int gpus = of.machine.gpus;
  const cost::CostModel cost = bench::cost_of(of.model, gpus);
  plan::PlannerOptions options{.world_size = gpus, .candidates = bench::candidates_of(of)};
  std::printf("| %s | %d | %s | %s |", of.model.c_str(), gpus, of.corpus.c_str(), of.lanes().c_str());
  if (options.candidates.empty()) {
    std::printf(" no strategy holds %ld tokens |\n", static_cast<long>(bench::kContextTokens));
    return;
  }
  const plan::Planner ours(options, cost);
  std::vector<plan::Planner> papers;  // by tie rule; without lanes
  if (of.max_cp == 1) {
    for (const published::TieRule rule : {published::TieRule::kFirst, published::TieRule::kOwnLoad}) {
      options.method = published::paper({.dispatch = {.tie_rule = rule}});
      papers.emplace_back(options, cost);
    }
  }
  base::Rng rng(7, static_cast<uint64_t>(gpus));
  Series ms, step_ms, gap, paper_ms, over_first, over_own;
  for (int step = -2; step < batches; ++step) {  // two to warm up
    const std::vector<strategy::Sequence> sequences = bench::draw(of.lengths, of.machine.batch_tokens, rng);
    const bench::Timed mine = bench::timed(ours, std::max(step, 0), sequences);
    check(mine.plan, cost, gpus);
    if (step < 0) continue;
    ms.values.push_back(mine.ms);
    step_ms.values.push_back(time_ns(mine) / 1e6);
    gap.values.push_back(static_cast<double>(mine.plan.gap_ppm()) / 1e4);
    if (papers.empty()) continue;
    over_first.values.push_back(time_ns(bench::timed(papers[0], step, sequences)) / time_ns(mine));
    const bench::Timed own = bench::timed(papers[1], step, sequences);
    over_own.values.push_back(time_ns(own) / time_ns(mine));
    paper_ms.values.push_back(own.ms);
  }
  std::printf(" %.2f | %.2f | %.2f | %.2f | %.2f |", ms.mean(), ms.quantile(0.99), step_ms.mean(),
              gap.quantile(0.5), gap.quantile(0.9));
  if (papers.empty()) {
    std::printf(" | | |\n");
  } else {
    std::printf(" %.2f | %.3f | %.3f |\n", paper_ms.mean(), over_first.mean(), over_own.mean());
  }
  std::fflush(stdout);
}

// Whether an argument is missing, "all" or `of`.
bool asked(int argc, char** argv, int at, const std::string& of) {
  return argc <= at || argv[at] == std::string("all") || argv[at] == of;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int batches = argc > 2 ? std::atoi(argv[2]) : 50;
  std::printf("Planned on one core of %s; command: planner_bench %s %d\n\n", bench::processor().c_str(),
              folder.c_str(), batches);
  std::printf(
      "| model | GPUs | lengths | lanes | mean ms | p99 ms | step ms | gap %% median | gap %% p90 | paper ms "
      "| "
      "paper, first ÷ ours | paper, own load ÷ ours |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const bench::Case& of : bench::cases(folder, argc > 6 ? argv[6] : "")) {
    if (!asked(argc, argv, 3, of.model) || !asked(argc, argv, 4, std::to_string(of.machine.gpus))) continue;
    if (argc > 5 && argv[5] != std::string("any") && argv[5] != of.lanes()) continue;
    run(of, batches);
  }
}
