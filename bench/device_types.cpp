// The gain from planning for devices of different speeds, by analytic costs alone, as a table in Markdown.
// bench/record.py kinds writes it.
//
// Strategies for each model and cluster keep each pipeline on one kind of device. Whole steps are timed by
// the clock: as planned; as planned for equal devices but run on the real ones; and on the fastest kind's
// nodes alone.
//
//   device_types_bench [LENGTHS]
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "inputs.h"
#include "model/outline.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "strategy/cluster.h"

namespace {

using namespace sluice;

constexpr int64_t kContextTokens = 16'384;
constexpr int64_t kTokensOfRank = 4096;
constexpr int kBatches = 4;
constexpr int kTenths = 9;  // tenths of a device's memory

constexpr const char* kModels[] = {"llama-7b", "llama-13b", "llama-32b"};
constexpr const char* kClusters[] = {"4x h100x8 + 4x a800x8", "2x h100x8 + 6x a800x8",
                                     "4x h100x8 + 4x a100x8", "4x h200x8 + 4x h100x8"};

cost::CostModel cost_of(const char* model, const strategy::Cluster& cluster) {
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * kTenths,
                                    .element_bytes = 2,
                                    .host_bytes = cost::host_bytes_of(cluster)};
  const std::vector<int> degrees = {1, 2, 4, 8};
  return cost::CostModel(cost::analytic_options(model::named_outline(model), cost::rates_of(cluster), memory,
                                                degrees, cluster.gpus_per_node));
}

plan::PlannerOptions options_of(int ranks, std::vector<strategy::Device> devices,
                                const std::vector<std::vector<int64_t>>& batches) {
  return {.world_size = ranks,
          .devices = std::move(devices),
          .policies = {{}, {.recompute_permille = 1000}},
          .context_length = kContextTokens,
          .sample_batches = batches,
          .max_cp = 0,
          .max_fsdp = 0};
}

// The mean step on these devices. The plans may be made for other devices.
double step_ms(const plan::Planner& planner, const std::vector<std::vector<int64_t>>& batches, int ranks,
               const std::vector<strategy::Device>& devices) {
  const cost::CostModel& cost = planner.cost();
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  double sum = 0;
  for (const std::vector<int64_t>& batch : batches) {
    strategy::StepPlan plan = planner.plan(0, plan::sequences_of(batch));
    for (strategy::PipelinePlan& each : plan.pipelines)
      each.pipeline = strategy::on_devices({{each.pipeline}}, devices).pipelines.front();
    sum += static_cast<double>(
        graph::build(plan, table, cost, ranks, {.disabled_passes = {"verify"}}).makespan_ns);
  }
  return sum / 1e6 / static_cast<double>(batches.size());
}

plan::Planner with_devices(const plan::Planner& planner, std::vector<strategy::Device> devices) {
  plan::PlannerOptions options = planner.options();
  options.devices = std::move(devices);
  return {std::move(options), planner.cost()};
}

void print_row(const char* model, const char* name, const std::vector<int64_t>& lengths) {
  const strategy::Cluster cluster = strategy::cluster_preset(name, 1);
  const int ranks = cluster.gpus();
  const std::vector<strategy::Device> devices = strategy::devices_of(cluster, ranks, kTenths);
  const auto sampled =
      plan::stratified_batches(lengths, {.tokens_per_step = ranks * kTokensOfRank, .batches = 16, .seed = 3});
  const auto batches = plan::stratified_batches(
      lengths, {.tokens_per_step = ranks * kTokensOfRank, .batches = kBatches, .seed = 11});
  const cost::CostModel cost = cost_of(model, cluster);
  const plan::Planner planner = session::make_planner(options_of(ranks, devices, sampled), cost);
  std::vector<strategy::Device> alike = devices;
  for (strategy::Device& device : alike) device.slowdown_percent = 100;
  const double known = step_ms(planner, batches, ranks, devices),
               even = step_ms(with_devices(planner, alike), batches, ranks, devices);
  // The whole batch on the fastest nodes, which come first.
  int fast = 0;
  for (const strategy::Device& device : devices) fast += device.slowdown_percent == 100 ? 1 : 0;
  const std::vector<strategy::Device> fastest(devices.begin(), devices.begin() + fast);
  const plan::Planner alone = session::make_planner(options_of(fast, fastest, sampled), cost);
  const double fast_ms = step_ms(alone, batches, fast, fastest);
  std::printf("| %s | %s | %s | %.0f | %.0f (%.2f) | %.0f (%.2f) |\n", model, name,
              strategy::to_text(planner.plan(0, plan::sequences_of(batches.front())).strategy()).c_str(),
              known, even, even / known, fast_ms, fast_ms / known);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<int64_t> lengths =
      bench::read_lengths(argc > 1 ? argv[1] : "bench/data/system_lengths.txt", 1, kContextTokens);
  std::printf("%lld tokens a rank, context %lld; milliseconds a step, and over the first:\n\n",
              static_cast<long long>(kTokensOfRank), static_cast<long long>(kContextTokens));
  std::printf(
      "| model | nodes | strategy of the first batch | by kinds | as if alike | fastest nodes alone |\n"
      "|---|---|---|---:|---:|---:|\n");
  for (const char* model : kModels) {
    for (const char* cluster : kClusters) print_row(model, cluster, lengths);
  }
  return 0;
}
