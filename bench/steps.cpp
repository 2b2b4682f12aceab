// Losses in the steps of a plan, under the published calibrations with adapters of 25 GB/s per GPU. Pipelines
// are compared with the busiest stage's work plus the first fill and the last drain, and with plain 1F1B on
// the same micro-batches. The other figures are shares of all ranks' time spent waiting for pull and push, in
// bubbles and idle, in the step graph that training would run.
//
//   steps_bench [DATA_FOLDER [BATCHES]]      DATA_FOLDER: bench/data
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "cost/shipped.h"
#include "graph/build.h"
#include "inputs.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "plan/proposal.h"
#include "plan/propose.h"
#include "report/time_shares.h"
#include "schedule/pipeline_schedule.h"
#include "study/rival_traits.h"

namespace {

using namespace sluice;

constexpr uint64_t kFreshSeed = 1'000'003;

struct Case {
  std::string calibration;
  int gpus;
  int64_t batch_tokens;
  int64_t context_tokens;
  std::vector<std::string> strategies;  // each alone; "proposed": the portfolio
};

const std::vector<Case> kCases = {
    {"a800-7b", 32, 200'000, 16'384, {"8x<2,2,1>", "4x<2,4,1>", "proposed"}},
    {"a800-13b", 32, 200'000, 16'384, {"4x<4,2,1>", "2x<4,4,1>", "proposed"}},
    {"a800-32b", 64, 400'000, 16'384, {"4x<8,2,1>", "2x<8,4,1>", "1x<8,2,1> + 3x<4,4,1>", "proposed"}},
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int64_t all_ns(const schedule::TimedMicroBatch& micro_batch, size_t stage) {
  return micro_batch.forward_ns[stage] + micro_batch.backward_input_ns[stage] +
         micro_batch.backward_weight_ns[stage];
}

// The busiest stage's work, the time until the last stage starts, and the time from its end on: often taken
// for the lower bound of a schedule of whole backwards.
int64_t work_fill_and_drain_ns(const schedule::PipelineLoad& load) {
  const auto last = static_cast<size_t>(load.stages - 1);
  int64_t busiest_ns = 0;
  for (size_t stage = 0; stage <= last; ++stage) {
    int64_t work_ns = 0;
    for (const schedule::TimedMicroBatch& micro_batch : load.micro_batches)
      work_ns += all_ns(micro_batch, stage);
    busiest_ns = std::max(busiest_ns, work_ns);
  }
  const schedule::TimedMicroBatch &first = load.micro_batches.front(), &final = load.micro_batches.back();
  for (size_t stage = 0; stage < last; ++stage) {
    busiest_ns += first.forward_ns[stage] + first.transfer_ns[stage] + final.transfer_ns[stage] +
                  final.backward_input_ns[stage] + final.backward_weight_ns[stage];
  }
  return busiest_ns;
}

// The makespan of plain 1F1B, with whole backwards: the best of the plan's order, by length in either
// direction, and longest in the middle.
int64_t best_one_f_one_b_ns(schedule::PipelineLoad load) {
  int64_t best_ns = schedule::schedule_pipeline(load).makespan_ns;
  const auto shorter = [](const schedule::TimedMicroBatch& a, const schedule::TimedMicroBatch& b) {
    return all_ns(a, 0) < all_ns(b, 0);
  };
  std::ranges::stable_sort(load.micro_batches, shorter);
  best_ns = std::min(best_ns, schedule::schedule_pipeline(load).makespan_ns);
  schedule::PipelineLoad ramped = load;
  ramped.micro_batches.clear();
  for (size_t i = 0; i < load.micro_batches.size(); i += 2)
    ramped.micro_batches.push_back(load.micro_batches[i]);
  for (size_t i = load.micro_batches.size() / 2 * 2; i >= 2; i -= 2)
    ramped.micro_batches.push_back(load.micro_batches[i - 1]);
  best_ns = std::min(best_ns, schedule::schedule_pipeline(ramped).makespan_ns);
  std::ranges::reverse(load.micro_batches);
  return std::min(best_ns, schedule::schedule_pipeline(load).makespan_ns);
}

class Measured {
 public:
  Measured(const Case& c, const cost::CostModel::Options& options)
      : gpus_(c.gpus),
        cost_(options),
        one_backward_(study::one_backward_cell(cost_)),
        table_(model::parameter_table(options.model)) {}

  void add(const strategy::StepPlan& plan) {
    for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
      if (pipeline.pipeline.scheme.pp > 1 && !pipeline.micro_batches.empty()) add_pipeline(pipeline);
    }
    const graph::StepGraph graph = graph::build(plan, table_, cost_, gpus_, {.link_plans = &links_});
    shares_ += report::time_shares(graph);
  }

  void print(const Case& c, const std::string& corpus, const std::string& strategies) const {
    const auto percent = [&](int64_t ns) {
      return 100.0 * static_cast<double>(ns) / static_cast<double>(shares_.total_ns());
    };
    std::printf("| %s | %d | %s | %s |", c.calibration.c_str(), c.gpus, corpus.c_str(), strategies.c_str());
    if (ours_.empty()) {
      std::printf(" – | – | – |");
    } else {
      std::printf(" %.3f | %.3f | %.3f |", median(ours_), *std::ranges::max_element(ours_), median(plain_));
    }
    std::printf(" %.2f | %.1f | %.1f | %.1f |\n", percent(shares_.pull_push_ns), percent(shares_.bubble_ns),
                percent(shares_.idle_ns), percent(shares_.update_ns));
    std::fflush(stdout);
  }

 private:
  void add_pipeline(const strategy::PipelinePlan& pipeline) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost_, gpus_);
    const auto bar_ns = static_cast<double>(work_fill_and_drain_ns(load));
    ours_.push_back(static_cast<double>(schedule::schedule_pipeline(load).makespan_ns) / bar_ns);
    const schedule::PipelineLoad plain = schedule::pipeline_load(pipeline, one_backward_, gpus_);
    plain_.push_back(static_cast<double>(best_one_f_one_b_ns(plain)) / bar_ns);
  }

  int gpus_;
  cost::CostModel cost_;
  cost::CostModel one_backward_;
  model::ParameterTable table_;
  graph::LinkPlans links_;
  std::vector<double> ours_, plain_;
  report::TimeShares shares_;
};

std::vector<strategy::Strategy> candidates(const std::string& text, const Case& c,
                                           const cost::CostModel& cost, const std::vector<int64_t>& lengths) {
  if (text != "proposed") return {strategy::parse_strategy(text, c.gpus)};
  return plan::strategies_of(plan::propose({.world_size = c.gpus,
                                            .context_length = c.context_tokens,
                                            .sample_batches = plan::stratified_batches(
                                                lengths, {.tokens_per_step = c.batch_tokens})},
                                           cost)
                                 .or_throw());
}

void measure(const Case& c, const std::string& folder, const std::string& corpus, int batches) {
  const std::vector<int64_t> lengths =
      bench::read_lengths(folder + "/" + corpus + "_lengths.txt", 2, c.context_tokens);
  cost::CostModel::Options options = cost::shipped(c.calibration).options;
  options.inter.bytes_per_s = 25'000'000'000;
  const cost::CostModel cost(options);
  for (const std::string& text : c.strategies) {
    const plan::Planner planner({.world_size = c.gpus, .candidates = candidates(text, c, cost, lengths)},
                                cost);
    Measured measured(c, options);
    for (const std::vector<int64_t>& batch : plan::stratified_batches(
             lengths, {.tokens_per_step = c.batch_tokens, .batches = batches, .seed = kFreshSeed})) {
      std::vector<strategy::Sequence> sequences;
      for (const int64_t length : batch) sequences.push_back({.length_tokens = length});
      measured.add(planner.plan(0, sequences));
    }
    measured.print(c, corpus, text);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int batches = argc > 2 ? std::atoi(argv[2]) : 10;
  std::printf(
      "| calibration | GPUs | lengths | strategy | makespan ÷ (work + fill + drain), median | worst | 1F1B, "
      "best order, median | pull and push %% | bubble %% | idle %% | update %% |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Case& c : kCases) {
    for (const char* corpus : {"wikipedia", "code"}) measure(c, folder, corpus, batches);
  }
}
