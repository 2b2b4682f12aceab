// Planning time, gap to the proved bound, and ours against the published algorithms, in one run, without a
// GPU: the published calibrations of 7B, 13B and 32B models on A800s, and analytic costs on nodes of eight
// H100, with batches of real lengths. Times are processor time of the planning thread.
//
//   planner_bench [DATA_FOLDER [BATCHES [MODEL [GPUS]]]]      DATA_FOLDER: bench/data; without MODEL all
#include "plan/planner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "inputs.h"
#include "plan/proposal.h"
#include "published/paper_plan.h"
#include "schedule/pipeline_schedule.h"

namespace {

using namespace sluice;

constexpr int64_t kContextTokens = 32'768;
constexpr int kCandidates = 8;
constexpr int kSampleBatches = 6;

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

void run(const std::string& shape, const Machine& machine, const std::string& name,
         const std::vector<int64_t>& lengths, int batches) {
  const cost::CostModel cost = cost_of(shape, machine.gpus);
  base::Rng rng(7, static_cast<uint64_t>(machine.gpus));
  plan::ProposalOptions proposal{.world_size = machine.gpus, .context_length = kContextTokens};
  proposal.max_strategies = kCandidates;
  for (int i = 0; i < kSampleBatches; ++i) {
    proposal.sample_batches.push_back(draw(lengths, machine.batch_tokens, rng));
  }
  plan::PlannerOptions options{.world_size = machine.gpus};
  try {
    options.candidates = plan::strategies_of(plan::propose(proposal, cost));
  } catch (const base::InfeasibleError&) {
    std::printf("| %s | %d | %s | no strategy holds %ld tokens |\n", shape.c_str(), machine.gpus,
                name.c_str(), static_cast<long>(kContextTokens));
    return;
  }
  const plan::Planner ours(options, cost);
  options.method = published::paper();
  const plan::Planner paper_own(options, cost);
  options.method = published::paper({.dispatch = {.tie_rule = plan::TieRule::kFirst}});
  const plan::Planner paper_first(options, cost);

  Series ms, paper_ms, gap, over_first, over_own;
  for (int step = -2; step < batches; ++step) {  // two to warm up
    std::vector<strategy::Sequence> sequences;
    for (const int64_t length : draw(lengths, machine.batch_tokens, rng)) {
      sequences.push_back({.document = static_cast<int64_t>(sequences.size()), .length_tokens = length});
    }
    const Timed mine = timed(ours, std::max(step, 0), sequences);
    check(mine.plan, cost, machine.gpus);
    if (step < 0) continue;
    const Timed first = timed(paper_first, step, sequences);
    const Timed own = timed(paper_own, step, sequences);
    const auto time = [](const Timed& of) { return static_cast<double>(of.plan.estimated_ns); };
    ms.values.push_back(mine.ms);
    paper_ms.values.push_back(own.ms);
    gap.values.push_back(static_cast<double>(mine.plan.gap_ppm()) / 1e4);
    over_first.values.push_back(time(first) / time(mine));
    over_own.values.push_back(time(own) / time(mine));
  }
  std::printf("| %s | %d | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.3f | %.3f |\n", shape.c_str(),
              machine.gpus, name.c_str(), ms.mean(), ms.quantile(0.99), paper_ms.mean(), gap.quantile(0.5),
              gap.quantile(0.9), over_first.mean(), over_own.mean());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int batches = argc > 2 ? std::atoi(argv[2]) : 50;
  std::printf("Planned on one core of %s; command: planner_bench %s %d\n\n", bench::processor().c_str(),
              folder.c_str(), batches);
  std::printf(
      "| model | GPUs | lengths | mean ms | p99 ms | paper ms | gap %% median | gap %% p90 | "
      "paper, first ÷ ours | paper, own load ÷ ours |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string shape : kModels) {
    if (argc > 3 && shape != argv[3]) continue;
    for (const Machine& machine : kMachines) {
      if (argc > 4 && machine.gpus != std::atoi(argv[4])) continue;
      for (const char* name : {"wikipedia", "code"}) {
        run(shape, machine, name,
            bench::read_lengths(folder + "/" + name + "_lengths.txt", 2, kContextTokens), batches);
      }
    }
  }
}
