// The proposal of strategies: processor time, influence of the seed, and gap to a much longer search.
// Also its gain over the best static strategy and over the paper's proposal, dispatch and packing, under
// the published calibrations. Proposals are compared on fresh batches, planned as training would plan
// them.
//
//   propose_bench [DATA_FOLDER [SEEDS [FRESH [CALIBRATION [GPUS]]]]]
//   propose_bench time [DATA_FOLDER [COSTS [GPUS]]]
//
// DATA_FOLDER: bench/data; FRESH batches judge SEEDS proposals; without CALIBRATION and GPUS all are run. The
// second form times proposals as commands make them, including the reading of lengths, up to 65,536 GPUs.
#include "plan/propose.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "cost/shipped.h"
#include "inputs.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "plan/proposal.h"
#include "published/paper_plan.h"
#include "published/paper_propose.h"
#include "published/static_strategy.h"
#include "session/methods.h"
#include "session/planning_inputs.h"

namespace {

using namespace sluice;

constexpr int64_t kContextTokens = 32'768;
constexpr uint64_t kFreshSeed = 1'000'003;
constexpr int kLongSearch = 12;  // factor of the starting points and plans, on four times as many batches
constexpr int kSampleBatches = 48;
constexpr int kMostPaperGpus = 1024;  // limit for timing the paper's proposal

struct Machine {
  int gpus;
  int64_t batch_tokens;
};
constexpr Machine kMachines[] = {{8, 100'000},  {16, 100'000},  {32, 100'000},
                                 {64, 200'000}, {256, 800'000}, {1024, 3'200'000}};

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// One line of the table.
class Case {
 public:
  Case(const std::string& calibration, const Machine& machine, const std::string& name,
       const std::vector<int64_t>& lengths, int fresh)
      : calibration_(calibration),
        machine_(machine),
        name_(name),
        lengths_(lengths),
        cost_(cost::shipped(calibration).options) {
    // Not stratified: one batch per stratum would leave no choice.
    fresh_ = plan::stratified_batches(lengths, {.tokens_per_step = machine.batch_tokens,
                                                .batches = fresh,
                                                .drawn_tokens_millions = 0,
                                                .seed = kFreshSeed});
  }

  void run(int seeds) const {
    std::vector<double> seconds, means_ns;
    size_t strategies = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
      const double begin = cpu_seconds();
      const std::vector<plan::Proposal> proposals = propose(options(seed, kSampleBatches, 1));
      seconds.push_back(cpu_seconds() - begin);
      strategies = std::max(strategies, proposals.size());
      means_ns.push_back(mean_ns(proposals));
    }
    const double long_begin = cpu_seconds();
    const std::vector<plan::Proposal> searched = propose(options(1, 4 * kSampleBatches, kLongSearch));
    const double long_seconds = cpu_seconds() - long_begin;
    const double long_ns = mean_ns(searched);
    const double static_ns = best_static_ns();
    const double paper_ns = mean_ns(published::paper_propose(options(1, kSampleBatches, 1), cost_).or_throw(),
                                    published::paper());
    const auto [least, most] = std::minmax_element(means_ns.begin(), means_ns.end());
    double mean = 0;
    for (const double ns : means_ns) mean += ns / static_cast<double>(means_ns.size());
    std::sort(seconds.begin(), seconds.end());
    std::printf("| %s | %d | %s | %.2f | %zu | %.1f | %.2f | %.3f | %.3f | %.1f | %.2f | %.2f |\n",
                calibration_.c_str(), machine_.gpus, name_.c_str(), seconds[seconds.size() / 2], strategies,
                mean / 1e6, (*most / *least - 1) * 100, mean / long_ns, *most / long_ns, long_seconds,
                static_ns / mean, paper_ns / mean);
    std::fflush(stdout);
  }

 private:
  plan::PlannerOptions options(int seed, int batches, int thoroughness) const {
    plan::PlannerOptions options{.world_size = machine_.gpus, .context_length = kContextTokens};
    options.sample_batches = plan::stratified_batches(
        lengths_,
        {.tokens_per_step = machine_.batch_tokens, .batches = batches, .seed = static_cast<uint64_t>(seed)});
    options.thoroughness = thoroughness;
    return options;
  }
  std::vector<plan::Proposal> propose(const plan::PlannerOptions& options) const {
    return plan::propose(options, cost_).or_throw();
  }
  // The mean step on the fresh batches.
  double mean_ns(const std::vector<plan::Proposal>& proposals,
                 std::shared_ptr<const plan::Method> method = plan::ours()) const {
    const plan::PlannerOptions options{
        .world_size = machine_.gpus, .candidates = plan::strategies_of(proposals), .method = method};
    const plan::Planner planner(options, cost_);
    double sum_ns = 0;
    for (const std::vector<int64_t>& batch : fresh_) {
      std::vector<strategy::Sequence> sequences;
      for (const int64_t length : batch) sequences.push_back({.length_tokens = length});
      sum_ns += static_cast<double>(planner.plan(0, sequences).estimated_ns);
    }
    return sum_ns / static_cast<double>(fresh_.size());
  }
  double best_static_ns() const {
    const published::StaticStrategy choice = published::best_static(options(1, kSampleBatches, 1), cost_);
    double sum_ns = 0;
    for (const std::vector<int64_t>& batch : fresh_) {
      sum_ns += static_cast<double>(published::static_plan(choice, batch, cost_, machine_.gpus).estimated_ns);
    }
    return sum_ns / static_cast<double>(fresh_.size());
  }

  std::string calibration_;
  Machine machine_;
  std::string name_;
  const std::vector<int64_t>& lengths_;
  cost::CostModel cost_;
  std::vector<std::vector<int64_t>> fresh_;
};

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

// Sources of costs: a shipped fit, or the analytic model of a shape on H100.
struct Costs {
  const char* name;
  session::PlanningOptions options;
};

double proposing_seconds(const session::PlanningOptions& options, session::MethodPtr method = plan::ours()) {
  const double begin = cpu_seconds();
  const session::PlanningInputs inputs = session::resolve_planning(options);
  plan::PlannerOptions planner = session::planner_options(inputs);
  planner.method = std::move(method);
  session::propose(planner, inputs.cost());
  return cpu_seconds() - begin;
}

// Prints lines by GPUs.
void time_proposals(const std::string& folder, const std::string& costs, int gpus) {
  const Costs all_costs[] = {{"a800-7b", {.calibration = "a800-7b"}},
                             {"a800-32b", {.calibration = "a800-32b"}},
                             {"llama-32b, H100", {.cluster = "h100x8", .model = "llama-32b"}}};
  constexpr Machine kTimed[] = {{64, 200'000},      {256, 800'000},       {1024, 3'200'000},
                                {4096, 12'800'000}, {16'384, 51'200'000}, {65'536, 204'800'000},
                                {65'536, 200'000}};
  std::printf(
      "| costs | GPUs | tokens | without lanes s | all lanes s | the paper's s | peak GiB so far |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const Machine& machine : kTimed) {
    if (gpus > 0 && gpus != machine.gpus) continue;
    for (const Costs& of : all_costs) {
      if (!costs.empty() && costs != of.name) continue;
      session::PlanningOptions options = of.options;
      options.gpus = machine.gpus;
      options.lengths = {folder + "/wikipedia_lengths.txt"};
      options.context_length = kContextTokens;
      options.tokens_per_step = machine.batch_tokens;
      const double lanes_s = proposing_seconds(options);
      options.max_cp = 1;
      const double without_s = proposing_seconds(options);
      std::printf("| %s | %d | %lld | %.1f | %.1f | ", of.name, machine.gpus,
                  static_cast<long long>(machine.batch_tokens), without_s, lanes_s);
      // The time of its trials grows with sequences times pipelines.
      if (machine.gpus <= kMostPaperGpus) {
        std::printf(
            "%.1f",
            proposing_seconds(options,
                              published::paper({.dispatch = {.seed = static_cast<uint64_t>(options.seed)}})));
      } else {
        std::printf("–");
      }
      std::printf(" | %.2f |\n", peak_gib());
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "time") == 0) {
    time_proposals(argc > 2 ? argv[2] : "bench/data", argc > 3 ? argv[3] : "",
                   argc > 4 ? std::atoi(argv[4]) : 0);
    return 0;
  }
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int seeds = argc > 2 ? std::atoi(argv[2]) : 10;
  const int fresh = argc > 3 ? std::atoi(argv[3]) : 200;
  std::printf("Processor time of one core of %s; command: propose_bench %s %d %d\n\n",
              bench::processor().c_str(), folder.c_str(), seeds, fresh);
  std::printf(
      "| calibration | GPUs | lengths | propose s | strategies | mean step ms | spread over seeds %% | "
      "÷ long search, mean | worst | long search s | best static ÷ ours | "
      "paper ÷ ours |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string calibration : {"a800-7b", "a800-13b", "a800-32b"}) {
    if (argc > 4 && calibration != argv[4]) continue;
    for (const Machine& machine : kMachines) {
      if (argc > 5 && machine.gpus != std::atoi(argv[5])) continue;
      for (const char* name : {"wikipedia", "code"}) {
        const std::vector<int64_t> lengths =
            bench::read_lengths(folder + "/" + name + "_lengths.txt", 2, kContextTokens);
        try {
          Case(calibration, machine, name, lengths, fresh).run(seeds);
        } catch (const base::InfeasibleError& error) {
          std::printf("| %s | %d | %s | %s |\n", calibration.c_str(), machine.gpus, name, error.what());
        }
      }
    }
  }
}
