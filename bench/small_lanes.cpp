// Small random batches on pipelines with lanes and stages: our plan and the proved bound, compared with the
// exact optimum.
//
//   small_lanes_bench [INSTANCES [WORST]]      500; prints so many of the worst ones
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "exact/exact.h"
#include "inputs.h"
#include "model/outline.h"
#include "plan/planner.h"
#include "schedule/pipeline_schedule.h"

namespace {

using namespace sluice;

constexpr int kRanks = 16;

struct Instance {
  const cost::CostModel* cost = nullptr;
  std::string strategy;
  std::vector<int64_t> lengths;
  double over = 0;   // ours ÷ optimum − 1
  double below = 0;  // 1 − bound ÷ optimum
};

cost::CostModel analytic() {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", kRanks / 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9,
                                    .element_bytes = 2,
                                    .owner_bytes_per_parameter = 12};
  const std::vector<int> degrees = {1, 2, 4, 8};
  return cost::CostModel(cost::analytic_options(model::named_outline("llama-7b"), cost::rates_of(cluster),
                                                memory, degrees, cluster.gpus_per_node));
}

// One to four pipelines of one to three stages and one to four lanes, some of them with several.
std::string draw_strategy(base::Rng& rng, bool any_stages) {
  std::vector<std::string> terms;
  int ranks = kRanks;
  bool laned = false;
  for (int64_t left = rng.between(1, 4); left > 0 || !laned;) {
    const int64_t cp = rng.between(left > 1 || laned ? 1 : 2, 4);
    const int64_t pp = any_stages ? rng.between(1, 3) : int64_t{1} << rng.below(2);
    const int64_t tp = int64_t{1} << rng.below(any_stages ? 2 : 4);
    if (cp * pp * tp > ranks) {
      ranks = kRanks;
      terms.clear();
      laned = false;
      left = rng.between(1, 4);
      continue;
    }
    ranks -= static_cast<int>(cp * pp * tp);
    laned = laned || cp > 1;
    terms.push_back(base::text("<", tp, ",", pp, ",", cp, ">"));
    --left;
  }
  return base::join(terms, " + ");
}

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
  return sequences;
}

// Lengths spread evenly over their logarithms.
std::vector<int64_t> draw_lengths(base::Rng& rng, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t left = rng.between(1, 5); left > 0; --left) {
    const double part = static_cast<double>(rng.below(1 << 20)) / (1 << 20);
    lengths.push_back(std::max<int64_t>(2, std::llround(std::pow(static_cast<double>(longest), part))));
  }
  return lengths;
}

int64_t scheduled_ns(const strategy::StepPlan& plan, const cost::CostModel& cost) {
  int64_t last_ns = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, kRanks);
    last_ns = std::max(last_ns, schedule::schedule_pipeline(load).makespan_ns);
  }
  return last_ns;
}

double measure(Instance& of) {
  plan::PlannerOptions options{.world_size = kRanks};
  options.candidates.push_back(strategy::parse_strategy(of.strategy, kRanks));
  const strategy::StepPlan ours = plan::Planner(options, *of.cost).plan(0, sequences_of(of.lengths));
  options.method = exact::method();
  const strategy::StepPlan best = plan::Planner(options, *of.cost).plan(0, sequences_of(of.lengths));
  strategy::validate(ours, kRanks);
  strategy::validate(best, kRanks);
  SLUICE_ASSERT(scheduled_ns(best, *of.cost) == best.estimated_ns, of.strategy);
  SLUICE_ASSERT(ours.lower_bound_ns <= best.estimated_ns && best.estimated_ns <= ours.estimated_ns,
                of.strategy);
  const auto optimum = static_cast<double>(best.estimated_ns);
  of.over = static_cast<double>(ours.estimated_ns) / optimum - 1;
  of.below = 1 - static_cast<double>(ours.lower_bound_ns) / optimum;
  return of.over;
}

void print_line(const char* name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) { return 100 * values[static_cast<size_t>(part * (values.size() - 1))]; };
  std::printf("| %s | %.2f | %.2f | %.2f |\n", name, at(0.5), at(0.9), at(1));
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 500;
  const int worst = argc > 2 ? std::atoi(argv[2]) : 0;
  const std::vector<cost::CostModel> costs = {cost::CostModel(cost::shipped("a800-7b").options),
                                              cost::CostModel(cost::shipped("a800-32b").options), analytic()};
  std::vector<Instance> instances;
  for (uint64_t seed = 0; static_cast<int>(instances.size()) < count; ++seed) {
    base::Rng rng(seed, 77);
    const size_t machine = seed % costs.size();
    Instance next{.cost = &costs[machine], .strategy = draw_strategy(rng, machine == 2), .lengths = {}};
    plan::PlannerOptions options{.world_size = kRanks};
    options.candidates.push_back(strategy::parse_strategy(next.strategy, kRanks));
    try {
      const int64_t longest = plan::Planner(options, *next.cost).max_len_tokens();
      if (longest < 2) continue;
      next.lengths = draw_lengths(rng, std::min<int64_t>(longest, 131'072));
    } catch (const base::InputError&) {
      continue;  // the calibration lacks the scheme
    }
    measure(next);
    instances.push_back(std::move(next));
  }
  std::printf("%d instances; per cent\n\n| | median | p90 | worst |\n|---|---|---|---|\n", count);
  std::vector<double> over, below;
  for (const Instance& of : instances) {
    over.push_back(of.over);
    below.push_back(of.below);
  }
  print_line("ours above the optimum", over);
  print_line("bound below the optimum", below);
  std::sort(instances.begin(), instances.end(),
            [](const Instance& a, const Instance& b) { return a.over > b.over; });
  for (int i = 0; i < std::min(worst, count); ++i) {
    const Instance& of = instances[static_cast<size_t>(i)];
    std::printf("%5.1f %% %s %s:", 100 * of.over,
                of.cost == &costs[0]   ? "7b"
                : of.cost == &costs[1] ? "32b"
                                       : "h100",
                of.strategy.c_str());
    for (const int64_t length : of.lengths) std::printf(" %ld", static_cast<long>(length));
    std::printf("\n");
  }
}
