// One pipeline of many lanes: planning time (CPU time of its one thread), and its makespan over the proved
// lower bound. Compared with reference planners on the same lanes and with static CP on as many ranks, all
// timed by the same schedule and costs. Numbers in brackets: the busiest lane's work over the mean. Plans are
// validated and re-scored before they count.
//
//   lanes_bench [DATA_FOLDER [REPEATS]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "inputs.h"
#include "model/outline.h"
#include "plan/planner.h"
#include "published/byte_scale.h"
#include "published/dynamic_cp.h"
#include "published/static_strategy.h"
#include "schedule/pipeline_schedule.h"

namespace {

using namespace sluice;

constexpr int kRanks = 512;
constexpr int64_t kLongestTokens = 131'072;
constexpr int kWarmUps = 2;

// CPU time of this thread, on which other processes have little influence.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// llama-7b on nodes of eight H100.
cost::CostModel cost_of_machine() {
  const strategy::Cluster cluster = strategy::cluster_preset("h100x8", kRanks / 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9,
                                    .element_bytes = 2,
                                    .owner_bytes_per_parameter = 12};
  const std::vector<int> degrees = {1};
  return cost::CostModel(cost::analytic_options(model::named_outline("llama-7b"), cost::rates_of(cluster),
                                                memory, degrees, cluster.gpus_per_node));
}

// Lengths drawn from the file, times `stretch`.
std::vector<int64_t> draw(const std::vector<int64_t>& lengths, int64_t stretch, int count, base::Rng& rng) {
  std::vector<int64_t> batch;
  for (int i = 0; i < count; ++i) {
    const int64_t length = lengths[rng.below(lengths.size())] * stretch;
    batch.push_back(std::clamp<int64_t>(length, 2, kLongestTokens));
  }
  return batch;
}

// 80 % up to 4K tokens, 19 % up to 64K and 1 % up to 128K, each class with density 1/x from its lower end.
std::vector<int64_t> draw_long_tailed(int count, base::Rng& rng) {
  std::vector<int64_t> batch;
  for (int i = 0; i < count; ++i) {
    const uint64_t of = rng.below(100);
    const int64_t most = of < 80 ? 4096 : of < 99 ? 65'536 : kLongestTokens;
    const int64_t least = of < 80 ? 64 : most / 16;
    const int64_t inverse = rng.between(1'000'000 * least / most, 1'000'000);
    batch.push_back(std::min(kLongestTokens, 1'000'000 * least / inverse));
  }
  return batch;
}

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) {
    sequences.push_back({.document = static_cast<int64_t>(sequences.size()), .length_tokens = length});
  }
  return sequences;
}

// Checks that the plan's estimate is its schedule's time. Returns the busiest lane's busy time over the mean.
double check(const strategy::StepPlan& plan, const cost::CostModel& cost) {
  strategy::validate(plan, kRanks);
  int64_t makespan_ns = 0;
  int64_t busiest_ns = 0;
  int64_t sum_ns = 0;
  int64_t lanes = 0;
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    const schedule::PipelineLoad load = schedule::pipeline_load(pipeline, cost, kRanks);
    makespan_ns = std::max(makespan_ns, schedule::schedule_pipeline(load).makespan_ns);
    std::vector<int64_t> busy_ns(static_cast<size_t>(load.lanes), 0);
    for (const schedule::TimedMicroBatch& micro_batch : load.micro_batches) {
      for (size_t stage = 0; stage < micro_batch.forward_ns.size(); ++stage) {
        for (int lane = micro_batch.first_lane; lane < micro_batch.first_lane + micro_batch.lanes; ++lane) {
          busy_ns[static_cast<size_t>(lane)] += micro_batch.forward_ns[stage] +
                                                micro_batch.backward_input_ns[stage] +
                                                micro_batch.backward_weight_ns[stage];
        }
      }
    }
    busiest_ns = std::max(busiest_ns, *std::max_element(busy_ns.begin(), busy_ns.end()));
    sum_ns = std::accumulate(busy_ns.begin(), busy_ns.end(), sum_ns);
    lanes += static_cast<int64_t>(busy_ns.size());
  }
  if (makespan_ns != plan.estimated_ns) {
    throw base::RunError("a plan's estimate is not the time of its schedule");
  }
  return static_cast<double>(busiest_ns) * static_cast<double>(lanes) / static_cast<double>(sum_ns);
}

// For the only pipeline, relative to the bound: the busiest stage's work on the mean lane, and the makespan
// with unlimited memory per lane. The rest is the cost of order and memory.
std::pair<double, double> losses(const strategy::StepPlan& plan, const cost::CostModel& cost) {
  schedule::PipelineLoad load = schedule::pipeline_load(plan.pipelines.front(), cost, kRanks);
  std::vector<int64_t> busy_ns(static_cast<size_t>(load.stages), 0);
  for (const schedule::TimedMicroBatch& micro_batch : load.micro_batches) {
    for (size_t s = 0; s < busy_ns.size(); ++s) {
      busy_ns[s] += micro_batch.lanes * (micro_batch.forward_ns[s] + micro_batch.backward_input_ns[s] +
                                         micro_batch.backward_weight_ns[s]);
    }
  }
  for (const schedule::TimedMicroBatch& micro_batch : load.micro_batches)
    load.credit_tokens += micro_batch.credit();
  const auto bound_ns = static_cast<double>(plan.lower_bound_ns);
  return {static_cast<double>(*std::max_element(busy_ns.begin(), busy_ns.end())) / load.lanes / bound_ns,
          static_cast<double>(schedule::schedule_pipeline(load).makespan_ns) / bound_ns};
}

// Every sequence takes as many lanes as the longest needs, or twice as many, and so on: the best of these.
strategy::StepPlan static_plan(const strategy::Scheme& scheme, const std::vector<int64_t>& lengths,
                               const cost::CostModel& cost) {
  std::optional<strategy::StepPlan> best;
  for (int cp = 1; cp <= scheme.cp; cp *= 2) {
    const strategy::Scheme part{.tp = scheme.tp, .pp = scheme.pp, .cp = cp};
    const plan::SchemeCost priced(part, cost, kRanks);
    if (priced.max_len_tokens() < *std::max_element(lengths.begin(), lengths.end())) continue;
    strategy::StepPlan next = published::static_plan(
        {.scheme = part, .pipelines = scheme.cp / cp, .micro_batch_tokens = priced.lane_max_len_tokens()},
        lengths, cost, kRanks);
    if (!best || next.estimated_ns < best->estimated_ns) best = std::move(next);
  }
  return std::move(*best);
}

// Median and maximum CPU time of planning.
template <typename Plan>
std::pair<double, double> time_ms(const Plan& plan, int repeats) {
  std::vector<double> times_ms;
  for (int repeat = -kWarmUps; repeat < repeats; ++repeat) {
    const double begin_ms = cpu_ms();
    plan();
    if (repeat >= 0) times_ms.push_back(cpu_ms() - begin_ms);
  }
  std::sort(times_ms.begin(), times_ms.end());
  return {times_ms[times_ms.size() / 2], times_ms.back()};
}

void run(const std::string& name, const strategy::Scheme& scheme, const std::vector<int64_t>& lengths,
         const cost::CostModel& cost, int repeats) {
  const strategy::Strategy strategy = strategy::parse_strategy(base::text("1x", to_text(scheme)), kRanks);
  const plan::Planner planner({.world_size = kRanks, .candidates = {strategy}}, cost);
  const std::vector<strategy::Sequence> sequences = sequences_of(lengths);
  const auto dynamic = [&] {
    return published::dynamic_cp_plan({.scheme = scheme}, lengths, cost, kRanks).or_throw();
  };
  const auto byte_scale = [&](published::ByteScaleRule rule) {
    return published::byte_scale_plan({.scheme = scheme, .rule = rule}, lengths, cost, kRanks).or_throw();
  };
  const strategy::StepPlan ours = planner.plan(0, sequences);
  const auto [ours_ms, ours_most_ms] = time_ms([&] { planner.plan(0, sequences); }, repeats);
  const auto [dynamic_ms, unused] = time_ms(dynamic, repeats);
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto bound_ns = static_cast<double>(ours.lower_bound_ns);
  std::printf("| %s | %zu | %.1f | %.2f (%s) | %.2f | %.2f | %.2f", name.c_str(), lengths.size(),
              static_cast<double>(tokens) / 1e6, bound_ns / 1e9,
              ours.bounded_by ? base::word_of(strategy::kProofs, *ours.bounded_by) : "", ours_ms,
              ours_most_ms, dynamic_ms);
  for (const strategy::StepPlan& plan :
       {ours, dynamic(), byte_scale(published::ByteScaleRule::kNaive),
        byte_scale(published::ByteScaleRule::kDpBalance), byte_scale(published::ByteScaleRule::kPpBalance),
        static_plan(scheme, lengths, cost)}) {
    const double imbalance = check(plan, cost);
    std::printf(" | %.4f (%.2f)", static_cast<double>(plan.estimated_ns) / bound_ns, imbalance);
  }
  if (scheme.pp > 1) {
    const auto [work, unlimited] = losses(ours, cost);
    std::printf(" | %.4f | %.4f", work, unlimited);
  }
  std::printf(" |\n");
  std::fflush(stdout);
}

// Lane-seconds of one sequence, by the number of lanes in its ring.
void print_lane_seconds(const strategy::Scheme& scheme, const cost::CostModel& cost) {
  const plan::SchemeCost priced(scheme, cost, kRanks);
  const std::vector<int> counts = {1, 2, 4, 8, 9, 12, 16, 32, 64, 128};
  std::printf("A lane holds %lld tokens. Lane-seconds of one sequence, by lanes:\n\n| tokens |",
              static_cast<long long>(priced.lane_max_len_tokens()));
  for (const int lanes : counts) std::printf(" %d |", lanes);
  std::printf("\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int64_t length : {4096, 16'384, 65'536, 131'072}) {
    std::printf("| %lld |", static_cast<long long>(length));
    for (const int lanes : counts) {
      std::printf(" %.1f |", static_cast<double>(priced.lane_ns(length, lanes)) * lanes / 1e9);
    }
    std::printf("\n");
  }
  std::printf("\n");
}

// The least time of a sequence through all stages and back, by the number of lanes in its ring.
void print_paths(const strategy::Scheme& scheme, const cost::CostModel& cost) {
  const plan::SchemeCost priced(scheme, cost, kRanks);
  std::printf("A lane of %s holds %lld tokens. Seconds through all stages and back, by lanes:\n\n| tokens |",
              to_text(scheme).c_str(), static_cast<long long>(priced.lane_max_len_tokens()));
  const std::vector<int> counts = {4, 8, 12, 16, 32, 64, 128};
  for (const int lanes : counts) std::printf(" %d |", lanes);
  std::printf("\n|---|---|---|---|---|---|---|---|\n");
  for (const int64_t length : {16'384, 65'536, 131'072}) {
    std::printf("| %lld |", static_cast<long long>(length));
    for (const int lanes : counts) {
      std::printf(" %.1f |", static_cast<double>(priced.floors().path_ns(length, lanes)) / 1e9);
    }
    std::printf("\n");
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bench/data";
  const int repeats = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20;
  const cost::CostModel cost = cost_of_machine();
  print_lane_seconds({.cp = kRanks}, cost);
  print_paths({.pp = 4, .cp = 128}, cost);
  for (const strategy::Scheme& scheme : {strategy::Scheme{.cp = 512}, strategy::Scheme{.pp = 4, .cp = 128}}) {
    std::printf(
        "%s\n\n| lengths | sequences | tokens, millions | bound s (proof) | ours ms, median | most | dynamic "
        "CP "
        "ms | ours ÷ bound | dynamic CP | naive | DP-balance | PP-balance | static CP |%s\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|%s\n",
        to_text(scheme).c_str(), scheme.pp > 1 ? " our work | ours, unlimited memory |" : "",
        scheme.pp > 1 ? "---|---|" : "");
    for (const int sequences : {4096, 1024}) {
      base::Rng rng(3, static_cast<uint64_t>(sequences));
      for (const char* name : {"wikipedia", "code"}) {
        const std::vector<int64_t> lengths = bench::read_lengths(folder + "/" + name + "_lengths.txt");
        for (const int64_t stretch : {1, 8}) {
          run(base::text(name, " x ", stretch), scheme, draw(lengths, stretch, sequences, rng), cost,
              repeats);
        }
      }
      run("long-tailed", scheme, draw_long_tailed(sequences, rng), cost, repeats);
    }
    std::printf("\n");
  }
}
