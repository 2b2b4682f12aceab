// A third level of network: racks of many devices inside pods. Planning, the clock and the proofs need only
// another entry in a cluster's file, since none of them counts levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "model/outline.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "strategy/cluster.h"

namespace sluice::session {
namespace {

constexpr int kDevices = 64;
constexpr int64_t kPodContextTokens = 60'000;

// Racks of 16 devices, 2 in a pod.
strategy::Cluster pods(const strategy::LinkSpeed& between) {
  strategy::Cluster cluster = strategy::cluster_preset("h100x8", 4);
  cluster.gpus_per_node = cluster.nics_per_node = 16;
  cluster.groups = {{.name = "pod", .nodes = 2, .between = between}};
  return strategy::cluster_from_json(strategy::to_json(cluster), "pods.json");
}

cost::CostModel cost_on(const strategy::Cluster& cluster) {
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9, .element_bytes = 2};
  return cost::CostModel(cost::analytic_options(model::named_outline("llama-7b"), cost::rates_of(cluster),
                                                memory, std::vector<int>{1, 2, 4, 8}, cluster.topology()));
}

// Few long documents, so that lanes meet beyond racks and pods.
std::vector<std::vector<int64_t>> batches() {
  std::vector<std::vector<int64_t>> all;
  for (int64_t step = 0; step < 4; ++step) {
    std::vector<int64_t>& batch = all.emplace_back(4, 30'000 + step * 1'000);
    batch.push_back(kPodContextTokens - step);
    for (int64_t i = 0; i < 60; ++i) batch.push_back(200 + 37 * i + step);
  }
  return all;
}

struct Planned {
  std::string strategies;
  std::vector<int64_t> steps_ns;
};

// Steps by the clock. Every step graph is verified while it is built.
Planned planned(const cost::CostModel& cost, const std::vector<std::string>& candidates = {}) {
  plan::PlannerOptions options{.world_size = kDevices,
                               .context_length = kPodContextTokens,
                               .sample_batches = batches(),
                               .max_strategies = 3,
                               .max_cp = 0,
                               .max_fsdp = 0};
  for (const std::string& text : candidates)
    options.candidates.push_back(strategy::parse_strategy(text, kDevices));
  const plan::Planner planner = make_planner(options, cost);
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  Planned result;
  for (const strategy::Strategy& strategy : planner.options().candidates)
    result.strategies += to_text(strategy) + "; ";
  for (const std::vector<int64_t>& lengths : batches()) {
    const strategy::StepPlan plan = planner.plan(0, plan::sequences_of(lengths));
    EXPECT_LE(plan.lower_bound_ns, plan.estimated_ns);
    result.steps_ns.push_back(graph::build(plan, table, planner.cost(), kDevices).makespan_ns);
  }
  return result;
}

TEST(Pods, JoinedAsTheirRacksAreChangeNothing) {
  strategy::Cluster racks = pods({40, 10e3});
  const cost::CostModel with = cost_on(racks);
  racks.groups.clear();
  const cost::CostModel without = cost_on(racks);
  for (const char* strategy : {"<1,1,64,64>", "2x<1,1,32>", "<1,2,16> + 2x<2,1,8,8>"})
    EXPECT_EQ(planned(with, {strategy}).steps_ns, planned(without, {strategy}).steps_ns) << strategy;
  // With more proposals, one may suit unseen batches a little less well.
  const Planned more = planned(with), fewer = planned(without);
  for (size_t step = 0; step < more.steps_ns.size(); ++step)
    EXPECT_LE(more.steps_ns[step], fewer.steps_ns[step] + fewer.steps_ns[step] / 100) << more.strategies;
}

TEST(Pods, TakeLongerTheSlowerTheyAreJoinedAndPlansAvoidIt) {
  const std::vector<std::string> over_all = {"<1,1,64,64>"};
  const cost::CostModel fast = cost_on(pods({40, 10e3})), slow = cost_on(pods({1, 100e3}));
  const Planned fast_over_all = planned(fast, over_all), slow_over_all = planned(slow, over_all);
  const Planned best = planned(slow);
  for (size_t step = 0; step < best.steps_ns.size(); ++step) {
    EXPECT_GT(slow_over_all.steps_ns[step], fast_over_all.steps_ns[step]);
    EXPECT_LT(best.steps_ns[step], slow_over_all.steps_ns[step]) << best.strategies;
  }
}

// FSDP groups stay inside a pod if larger groups would have to wait for links between pods.
TEST(Pods, AreWhatLanesShareIn) {
  const cost::CostModel slow = cost_on(pods({1, 100e3}));
  const Planned best = planned(slow), in_pods = planned(slow, {"<1,1,64,32>"});
  for (size_t step = 0; step < best.steps_ns.size(); ++step)
    EXPECT_LE(best.steps_ns[step], in_pods.steps_ns[step] + in_pods.steps_ns[step] / 100) << best.strategies;
}

// A strategy that crosses pods only in pull and push loses time in these alone.
TEST(Pods, ThatNoLaneLeavesDelayPullsAndPushesAlone) {
  const std::vector<std::string> inside = {"2x<1,1,32,32>"};
  const std::vector<int64_t> fast = planned(cost_on(pods({40, 10e3})), inside).steps_ns;
  const std::vector<int64_t> slow = planned(cost_on(pods({20, 10e3})), inside).steps_ns;
  // A rank owns a 64th of 6.7 billion parameters and pulls and pushes 2 and 4 bytes of each of a 32nd.
  constexpr int64_t kMostMovedBytes = int64_t{6'800'000'000} / 32 * 6;
  for (size_t step = 0; step < fast.size(); ++step) {
    EXPECT_GE(slow[step], fast[step]);
    EXPECT_LE(slow[step] - fast[step], kMostMovedBytes / 20 + 1'000'000);
  }
}

}  // namespace
}  // namespace sluice::session
