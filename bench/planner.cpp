// Planning time, gap to the proved bound, and ours against the published algorithms, in one run, without a
// GPU: the published calibrations of 7B, 13B and 32B models on A800s, and analytic costs on nodes of eight
// H100, with batches of real lengths, with one lane a pipeline and with up to eight. Times are processor time
// of the planning thread.
//
//   planner_bench [DATA_FOLDER [BATCHES [MODEL [GPUS [CANDIDATES]]]]]
//
// DATA_FOLDER: bench/data; MODEL and GPUS: "all". CANDIDATES: a folder that keeps what was proposed from one
// run to the next, so that two versions of the planner choose among the same strategies.
#include "plan/planner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "inputs.h"
#include "plan/batch_sample.h"
#include "plan/proposal.h"
#include "published/paper_plan.h"
#include "schedule/pipeline_schedule.h"

namespace {

using namespace sluice;

constexpr int64_t kContextTokens = 32'768;
constexpr int kCandidates = 8;
constexpr int kLanes[] = {1, 8};  // most lanes of a pipeline

struct Machine {
  int gpus;
  int64_t batch_tokens;
};
constexpr Machine kMachines[] = {{8, 100'000},   {16, 100'000},    {32, 100'000},    {64, 200'000},
                                 {256, 800'000}, {512, 1'600'000}, {1024, 3'200'000}};
const char* const kModels[] = {"a800-7b", "a800-13b", "a800-32b", "llama-7b", "llama-13b", "llama-32b"};

std::vector<int64_t> draw(const std::vector<int64_t>& lengths, int64_t tokens, base::Rng& rng) {
  std::vector<int64_t> batch;
  for (int64_t drawn = 0; drawn < tokens;) {
    batch.push_back(lengths[static_cast<size_t>(rng.below(lengths.size()))]);
    drawn += batch.back();
  }
  return batch;
}

// A shipped calibration by its name, or a model's shape on H100s.
cost::CostModel cost_of(const std::string& shape, int gpus) {
  const std::vector<std::string> shipped = cost::shipped_names();
  if (std::find(shipped.begin(), shipped.end(), shape) != shipped.end()) {
    return cost::CostModel(cost::shipped(shape).options);
  }
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", gpus / 8);
  cost::AnalyticMemory memory;
  memory.device_bytes = cluster.device_memory_bytes / 10 * 9;
  memory.element_bytes = 2;
  memory.owner_bytes_per_parameter = 12;
  const std::vector<int> degrees = {1, 2, 4, 8};
  return cost::CostModel(cost::analytic_options(model::named_shape(shape), cost::rates_of(cluster), memory,
                                                degrees, cluster.gpus_per_node));
}

// The answer is checked before it counts: a valid plan whose estimate is its schedule's.
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

struct Timed {
  strategy::StepPlan plan;
  double ms = 0;
};

double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

Timed timed(const plan::Planner& planner, int64_t step, const std::vector<strategy::Sequence>& sequences) {
  const double begin_ms = processor_ms();
  Timed result{planner.plan(step, sequences)};
  result.ms = processor_ms() - begin_ms;
  return result;
}

// One line of the table.
struct Case {
  std::string shape;
  Machine machine;
  std::string name;  // of the lengths
  int max_cp = 1;
  std::vector<int64_t> lengths;
  std::string kept;  // a folder of candidates; empty: none are kept

  std::string file() const {
    return kept + "/" + shape + "-" + std::to_string(machine.gpus) + "-" + name + "-" +
           std::to_string(max_cp) + ".txt";
  }
};

std::vector<strategy::Strategy> proposed(const Case& of, const cost::CostModel& cost) {
  plan::ProposalOptions options{.world_size = of.machine.gpus, .context_length = kContextTokens};
  options.max_strategies = kCandidates;
  options.max_cp = of.max_cp;
  options.sample_batches =
      plan::stratified_batches(of.lengths, {.tokens_per_step = of.machine.batch_tokens});
  return plan::strategies_of(plan::propose(options, cost));
}

// As kept, or proposed and kept.
std::vector<strategy::Strategy> candidates_of(const Case& of, const cost::CostModel& cost) {
  if (of.kept.empty()) return proposed(of, cost);
  if (!std::filesystem::exists(of.file())) {
    const std::vector<strategy::Strategy> strategies = proposed(of, cost);
    std::ofstream file(of.file());
    for (const strategy::Strategy& strategy : strategies) file << to_text(strategy) << '\n';
    return strategies;
  }
  std::vector<strategy::Strategy> strategies;
  std::ifstream file(of.file());
  for (std::string line; std::getline(file, line);)
    strategies.push_back(strategy::parse_strategy(line, of.machine.gpus));
  return strategies;
}

double time_ns(const Timed& of) { return static_cast<double>(of.plan.estimated_ns); }

void run(const Case& of, int batches) {
  const int gpus = of.machine.gpus;
  const cost::CostModel cost = cost_of(of.shape, gpus);
  plan::PlannerOptions options{.world_size = gpus};
  std::printf("| %s | %d | %s | %d |", of.shape.c_str(), gpus, of.name.c_str(), of.max_cp);
  try {
    options.candidates = candidates_of(of, cost);
  } catch (const base::InfeasibleError&) {
    std::printf(" no strategy holds %ld tokens |\n", static_cast<long>(kContextTokens));
    return;
  }
  const plan::Planner ours(options, cost);
  std::vector<plan::Planner> papers;  // by tie rule; they know no lanes
  if (of.max_cp == 1) {
    for (const plan::TieRule rule : {plan::TieRule::kFirst, plan::TieRule::kOwnLoad}) {
      options.method = published::paper({.dispatch = {.tie_rule = rule}});
      papers.emplace_back(options, cost);
    }
  }
  base::Rng rng(7, static_cast<uint64_t>(gpus));
  Series ms, step_ms, gap, paper_ms, over_first, over_own;
  for (int step = -2; step < batches; ++step) {  // two to warm up
    std::vector<strategy::Sequence> sequences;
    for (const int64_t length : draw(of.lengths, of.machine.batch_tokens, rng)) {
      sequences.push_back({.document = static_cast<int64_t>(sequences.size()), .length_tokens = length});
    }
    const Timed mine = timed(ours, std::max(step, 0), sequences);
    check(mine.plan, cost, gpus);
    if (step < 0) continue;
    ms.values.push_back(mine.ms);
    step_ms.values.push_back(time_ns(mine) / 1e6);
    gap.values.push_back(static_cast<double>(mine.plan.gap_ppm()) / 1e4);
    if (papers.empty()) continue;
    over_first.values.push_back(time_ns(timed(papers[0], step, sequences)) / time_ns(mine));
    const Timed own = timed(papers[1], step, sequences);
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

// Whether an argument, where it is given, is this or all.
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
      "| model | GPUs | lengths | lanes | mean ms | p99 ms | step ms | gap %% median | gap %% p90 | paper ms | "
      "paper, first ÷ ours | paper, own load ÷ ours |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const char* shape : kModels) {
    if (!asked(argc, argv, 3, shape)) continue;
    for (const Machine& machine : kMachines) {
      if (!asked(argc, argv, 4, std::to_string(machine.gpus))) continue;
      for (const char* name : {"wikipedia", "code", "system"}) {
        const std::vector<int64_t> lengths =
            bench::read_lengths(folder + "/" + name + "_lengths.txt", 2, kContextTokens);
        for (const int max_cp : kLanes) {
          run({shape, machine, name, max_cp, lengths, argc > 5 ? argv[5] : ""}, batches);
        }
      }
    }
  }
}
