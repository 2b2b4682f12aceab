#include "graph/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/rng.h"
#include "cost/memory_cost.h"
#include "graph/clock.h"
#include "graph/memory.h"
#include "graph/test_graphs.h"
#include "graph/verifier.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

using ::testing::IsEmpty;
using testing::random_case;

std::vector<std::string> labels(const StepGraph& graph, NodeKind kind) {
  std::vector<std::string> result;
  for (const int id : graph.in_order()) {
    if (graph.node(id).kind == kind) result.push_back(label(graph.node(id)));
  }
  return result;
}

int count(const StepGraph& graph, NodeKind kind) { return static_cast<int>(labels(graph, kind).size()); }

struct Small {
  model::Outline model = model::outline_of_12_heads(4);
  model::ParameterTable table = model::parameter_table(model);
  cost::CostModel cost = testing::small_cost(model);
  StepGraph build(const std::string& strategy, const std::vector<std::string>& loads, int world_size,
                  const BuildOptions& options = {}) const {
    return graph::build(testing::plan_from_text(strategy, loads, world_size), table, cost, world_size,
                        options);
  }
};

TEST(Build, RandomPlansAreProved) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto random = random_case(seed, {.policies = seed % 2 == 0, .freezes = seed % 3 == 0});
    const StepGraph graph =
        build(random.plan, random.table, random.cost, random.world_size, {.disabled_passes = {"verify"}});
    ASSERT_THAT(faults(graph, random.table, random.cost), IsEmpty()) << "seed " << seed << "\n"
                                                                     << to_text(graph);
  }
}

// Cells cut into parts, in both directions: exactly one part sums each operation's gradients.
TEST(Build, PartsSumEachGradientOnce) {
  base::Rng rng(5);
  for (int round = 0; round < 200; ++round) {
    const base::Interval whole{rng.between(0, 3), rng.between(4, 12)};
    const int behind = static_cast<int>(rng.between(1, 2));
    for (const cost::CellKind kind : {cost::CellKind::kForward, cost::CellKind::kBackwardWeight}) {
      int64_t summed = whole.begin;
      for (int64_t begin = whole.begin, end = begin; begin < whole.end; begin = end) {
        end = std::min(whole.end, begin + rng.between(1, 4));
        const base::Interval part = summed_by(kind, {begin, end}, whole, behind);
        EXPECT_EQ(part.begin, summed);
        EXPECT_GE(part.end, part.begin);
        summed = part.end;
        if (end == whole.end) continue;
        const bool forward = kind == cost::CellKind::kForward;
        EXPECT_EQ(part.end, std::clamp(end + (forward ? -behind : behind), whole.begin, whole.end));
      }
      EXPECT_EQ(summed, whole.end);
    }
  }
}

TEST(Build, LanesThatExchangeMoreHeadsThanThereAreAreRefused) {
  const Small small;
  strategy::StepPlan plan = testing::plan_from_text("<4,1,4>", {"ring 40/-/-/-"}, 16);
  plan.pipelines[0].micro_batches[0].exchange = strategy::Exchange::kHeads;
  EXPECT_THAT(
      [&] { graph::build(plan, small.table, small.cost, 16); },
      ::testing::ThrowsMessage<base::InputError>(
          "ring 0 of pipeline 0 <4,1,4>: 4 lanes exchange heads, but of the model's 12 a TP rank has 3: "
          "use fewer lanes, nested with head groups of at most 3, or a ring"));
  plan.pipelines[0].micro_batches[0].exchange = strategy::Exchange::kNested;
  plan.pipelines[0].micro_batches[0].nested_lanes = 2;
  EXPECT_NO_THROW(graph::build(plan, small.table, small.cost, 16));
}

TEST(Build, RandomPlansWithLanesAndRingsAreProved) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto random =
        random_case(seed, {.max_lanes = 3, .policies = seed % 2 == 0, .freezes = seed % 3 == 0});
    const StepGraph graph =
        build(random.plan, random.table, random.cost, random.world_size, {.disabled_passes = {"verify"}});
    ASSERT_THAT(faults(graph, random.table, random.cost), IsEmpty()) << "seed " << seed << "\n"
                                                                     << to_text(graph);
  }
}

TEST(Build, RandomPlansWhoseLanesShareParametersAreProved) {
  int shared = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto random = random_case(seed, {.max_ranks = 16,
                                           .max_lanes = 6,
                                           .max_fsdp = 4,
                                           .policies = seed % 2 == 0,
                                           .freezes = seed % 3 == 0});
    ASSERT_NO_THROW(validate(random.plan, random.world_size)) << "seed " << seed;
    const StepGraph graph =
        build(random.plan, random.table, random.cost, random.world_size, {.disabled_passes = {"verify"}});
    ASSERT_THAT(faults(graph, random.table, random.cost), IsEmpty()) << "seed " << seed << "\n"
                                                                     << to_text(graph);
    for (const Node& node : graph.nodes)
      shared += is_compute_cell(node.kind) && node.cell().fsdp_ns > 0 ? 1 : 0;
  }
  EXPECT_GT(shared, 300);
}

// FSDP's gathers take time beside computing; none is left over a link that takes no time.
TEST(Build, GathersThatTakeNoTimeLeaveThePassesOfTheirSlowestLane) {
  const model::Outline outline = model::outline_of_12_heads(4);
  cost::CostModel::Options options = testing::small_cost(outline).options();
  options.intra = {0, int64_t{1} << 60};
  const strategy::StepPlan plan = testing::plan_from_text("<1,1,2,2>", {"20, 30 / 40"}, 2);
  const StepGraph graph = build(plan, model::parameter_table(outline), cost::CostModel(options), 2);
  int64_t forward_ns = 0;
  for (const Node& node : graph.nodes) {
    if (!is_compute_cell(node.kind)) continue;
    EXPECT_EQ(node.cell().fsdp_ns, 0);
    EXPECT_EQ(node.members.size(), 2u);
    if (node.kind == NodeKind::kForward && node.cell().pass == 0) forward_ns += node.duration_ns;
  }
  const std::vector<int64_t> slowest = {40};
  EXPECT_EQ(forward_ns,
            cost::CostModel(options).cell_ns({1, 1, 2, 2}, cost::CellKind::kForward, {0, 6}, slowest));
}

TEST(Build, EveryChoiceOfPassesIsProved) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto random = random_case(seed, {.max_lanes = 2, .policies = true});
    for (const std::set<std::string>& disabled :
         {std::set<std::string>{"layer-parts"}, {"tail-weights"}, {"layer-parts", "tail-weights"}}) {
      EXPECT_NO_THROW(
          build(random.plan, random.table, random.cost, random.world_size, {.disabled_passes = disabled}))
          << "seed " << seed;
    }
  }
}

TEST(Build, OffloadedLayersLeaveAndReturnBetweenTheirCells) {
  const model::Outline outline = model::outline_of_12_heads(5);
  strategy::StepPlan plan = testing::plan_from_text("<1,1,1>", {"20, 30"}, 1);
  plan.pipelines[0].micro_batches[0].memory.offload_permille = 300;
  const cost::CostModel cost = testing::small_cost(outline);
  const StepGraph graph = build(plan, model::parameter_table(outline), cost, 1);
  int offloads = 0, fetches = 0;
  for (const Node& node : graph.nodes) {
    offloads += node.kind == NodeKind::kOffload ? 1 : 0;
    fetches += node.kind == NodeKind::kFetch ? 1 : 0;
    if (!is_copy(node.kind)) continue;
    EXPECT_EQ(node.copy().micro_batch, 0);
    EXPECT_EQ(node.bytes, 20 * 16 * 300 / 1000);
    EXPECT_LT(node.copy().block, 4);
  }
  EXPECT_EQ(offloads, 3);
  EXPECT_EQ(fetches, 3);
}

TEST(Build, EvaluationRunsForwardsOnly) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto random = random_case(seed);
    const StepGraph graph =
        build(random.plan, random.table, random.cost, random.world_size, {.purpose = Purpose::kEvaluate});
    for (const NodeKind kind : {NodeKind::kBackward, NodeKind::kBackwardInput, NodeKind::kBackwardWeight,
                                NodeKind::kSendGradient, NodeKind::kPushIntra, NodeKind::kUpdate}) {
      EXPECT_EQ(count(graph, kind), 0) << name_of(kind);
    }
    EXPECT_EQ(count(graph, NodeKind::kReduceScalars), 1);
  }
}

TEST(Build, IsAPureFunctionOfThePlan) {
  const auto random = random_case(5);
  const StepGraph first = build(random.plan, random.table, random.cost, random.world_size);
  const StepGraph second = build(random.plan, random.table, random.cost, random.world_size);
  EXPECT_EQ(to_text(first), to_text(second));
  EXPECT_EQ(hash(first), hash(second));
}

TEST(Build, EmptyPipelineTakesNoPart) {
  const StepGraph graph = Small().build("<1,1,1> + <2,2,1>", {"30", "-"}, 5);
  EXPECT_EQ(graph.links->strategy.pipelines.size(), 1u);
  for (const Node& node : graph.nodes) {
    if (node.at() != nullptr) {
      EXPECT_EQ(node.at()->pipeline, 0) << label(node);
    }
  }
  EXPECT_THAT(graph.links->layout.holdings(1), IsEmpty());
}

TEST(Build, OneNodeHasNoInterLevel) {
  const StepGraph one = Small().build("<1,1,1>", {"30"}, 4);
  EXPECT_EQ(count(one, NodeKind::kPullInter) + count(one, NodeKind::kPushInter), 0);
  Small two;
  two.cost = testing::small_cost(two.model, {.gpus_per_node = 2});
  const StepGraph graph = two.build("<1,1,1>", {"30"}, 4);
  EXPECT_EQ(count(graph, NodeKind::kPullInter), count(graph, NodeKind::kPullIntra));
  EXPECT_EQ(count(graph, NodeKind::kPushInter), count(graph, NodeKind::kPushIntra));
}

TEST(Build, FirstForwardAndLastBackwardRunRoundByRound) {
  const StepGraph graph = Small().build("<1,1,1>", {"30, 40"}, 1);
  EXPECT_THAT(labels(graph, NodeKind::kForward),
              ::testing::ElementsAre("F p0 s0 m0 E L0-1", "F p0 s0 m0 L1-2", "F p0 s0 m0 L2-3",
                                     "F p0 s0 m0 L3-4 H", "F p0 s0 m1 E L0-4 H"));
  EXPECT_THAT(labels(graph, NodeKind::kBackward),
              ::testing::ElementsAre("BW p0 s0 m0 E L0-4", "BW p0 s0 m1 L3-4", "BW p0 s0 m1 L2-3",
                                     "BW p0 s0 m1 L1-2", "BW p0 s0 m1 E L0-1"));
}

TEST(Build, TailWeightsRunLatestRoundFirstOverAllMicroBatches) {
  const StepGraph graph = Small().build("<1,2,1>", {"30, 40, 50"}, 2);
  std::vector<std::string> tail = labels(graph, NodeKind::kBackwardWeight);
  std::erase_if(tail, [](const std::string& name) { return name.find(" s1 ") == std::string::npos; });
  EXPECT_EQ(tail.back(), "W p0 s1 m2 L2-3");
  const auto above = std::ranges::find(tail, "W p0 s1 m2 L3-4");
  const auto below = std::ranges::find(tail, "W p0 s1 m2 L2-3");
  EXPECT_LT(above, below);
}

// Parts add up to what the schedule gave the whole cell.
TEST(Build, PartsTakeAsLongAsTheWhole) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto random = random_case(seed, {.max_lanes = 2, .max_fsdp = seed % 2 == 0 ? 2 : 1});
    const auto total = [&](const std::set<std::string>& disabled) {
      std::map<std::tuple<int, int, int, int>, int64_t> sum;
      const StepGraph graph =
          build(random.plan, random.table, random.cost, random.world_size, {.disabled_passes = disabled});
      for (const Node& node : graph.nodes) {
        if (is_compute_cell(node.kind)) {
          const Cell& cell = node.cell();
          sum[{cell.pipeline, cell.stage, cell.lane, cell.micro_batch}] += node.duration_ns;
        }
      }
      return sum;
    };
    EXPECT_EQ(total({}), total({"layer-parts", "tail-weights"})) << "seed " << seed;
  }
}

// A part gathers the first operation of the next one, so it waits for that one's round too; beyond such waits
// the first pass takes as long as uncut.
TEST(Build, AFirstPassCutByRoundsTakesTheUncutOneAndItsWaits) {
  const model::Outline outline = model::outline_of_12_heads(6);
  cost::CostModel::Options options = testing::small_cost(outline, {.gpus_per_node = 2}).options();
  options.inter.bytes_per_s = 300'000'000;
  const cost::CostModel cost(options);
  const Program program(outline);
  int earlier = 0;
  for (const char* strategy : {"<1,1,4,2>", "<1,1,4,4>", "<1,2,2,2>"}) {
    const bool staged = std::string(strategy) == "<1,2,2,2>";
    const strategy::StepPlan plan = testing::plan_from_text(
        strategy, {staged ? "20, 30 / 40, 10" : "20, 30 / 40, 10 / 10, 30 / 50, 20"}, 4);
    const model::ParameterTable table = model::parameter_table(outline);
    const StepGraph cut = build(plan, table, cost, 4);
    const StepGraph uncut = build(plan, table, cost, 4, {.disabled_passes = {"layer-parts"}});
    const auto first_pass = [](const StepGraph& graph) {
      std::vector<const Node*> parts;
      for (const int id : graph.in_order()) {
        const Node& node = graph.node(id);
        if (node.kind != NodeKind::kForward) continue;
        const Cell& cell = node.cell();
        if (cell.stage == 0 && cell.lane == 0 && cell.micro_batch == 0) parts.push_back(&node);
      }
      return parts;
    };
    const std::vector<const Node*> parts = first_pass(cut), whole = first_pass(uncut);
    ASSERT_EQ(whole.size(), 1u);
    ASSERT_GT(parts.size(), 1u);
    std::vector<int64_t> arrived_ns(cut.links->rounds.buckets.size());
    for (const Node& node : cut.nodes) {
      if (node.kind == NodeKind::kPullIntra) arrived_ns[static_cast<size_t>(node.round())] = node.end_ns;
    }
    const std::vector<int> rounds = pull_rounds(program, cut.links->rounds);
    int64_t free_ns = 0, waits_ns = 0;
    for (const Node* part : parts) {
      const base::Interval stage = program.of_stage(1, staged ? 2 : 1, 0);
      int64_t ready_ns = 0;
      for (int64_t at = part->cell().run.begin; at < std::min(part->cell().run.end + 1, stage.end); ++at)
        ready_ns = std::max(ready_ns, arrived_ns[static_cast<size_t>(rounds[static_cast<size_t>(at)])]);
      waits_ns += std::max<int64_t>(0, ready_ns - free_ns);
      EXPECT_EQ(part->start_ns, std::max(ready_ns, free_ns)) << label(*part);
      free_ns = part->end_ns;
    }
    EXPECT_EQ(free_ns, whole.front()->duration_ns + waits_ns) << strategy;
    EXPECT_LE(free_ns, whole.front()->end_ns) << strategy;
    earlier += free_ns < whole.front()->end_ns ? 1 : 0;
  }
  EXPECT_GT(earlier, 0);
}

// Gradients go no further than to the first layer that trains: no cell, no transfer and no bytes for those
// before it.
TEST(Build, BackwardsEndAtTheFirstTrainedLayer) {
  Small small;
  const auto counts = [](const StepGraph& graph) {
    int64_t walked_back = 0;
    for (const Node& node : graph.nodes) {
      if (!is_compute_cell(node.kind) || node.kind == NodeKind::kForward) continue;
      walked_back += node.kind == NodeKind::kBackwardWeight ? 0 : node.cell().run.size();
    }
    return std::tuple(walked_back, count(graph, NodeKind::kSendActivation),
                      count(graph, NodeKind::kSendGradient));
  };
  const auto graph = [&] { return small.build("<1,4,1>", {"20, 30, 40"}, 4); };
  const auto peak = [&](int rank) {
    return predicted_memory(graph(), small.cost)[static_cast<size_t>(rank)].peak_bytes;
  };
  EXPECT_EQ(counts(graph()), std::tuple(3 * 5, 9, 9));
  const int64_t whole = peak(1);
  using Case = std::array<int, 3>;
  for (const auto& [frozen, walked_back, gradients] :
       {Case{0, 4, 9}, Case{1, 3, 6}, Case{2, 2, 3}, Case{4, 0, 0}}) {
    small.model = model::outline_of_12_heads(4);
    testing::freeze_first(frozen, small.model);
    small.table = model::parameter_table(small.model);
    small.cost = testing::small_cost(small.model);
    EXPECT_EQ(counts(graph()), std::tuple(3 * walked_back, 9, gradients)) << frozen << " layers";
  }
  EXPECT_LT(peak(1), whole);
}

// Planning's score and the clock share one recurrence.
TEST(Build, WithoutLinksTheClockEqualsTheSchedule) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const int max_lanes = static_cast<int>(seed % 3) + 1;
    const int max_share = seed % 5 == 0 ? 3 : 1;
    const auto random = random_case(
        seed, {.max_pipelines = 1, .max_lanes = max_lanes, .max_fsdp = max_share, .freezes = seed % 7 == 0});
    StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    for (Node& node : graph.nodes) {
      if (node.at() == nullptr) node.duration_ns = 0;
    }
    run_clock(graph);
    const auto load = schedule::pipeline_load(random.plan.pipelines[0], random.cost, random.world_size);
    ASSERT_EQ(graph.makespan_ns, schedule::schedule_pipeline(load).makespan_ns) << "seed " << seed << "\n"
                                                                                << to_text(graph);
  }
}

// Nor do pipelines delay each other when pulling and pushing take no time.
TEST(Build, WithoutExchangesTheClockEqualsTheLongestSchedule) {
  int several = 0;
  int deep = 0;
  int between_nodes = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto random = random_case(seed, {.max_ranks = 40, .max_stages = 8});
    StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    int64_t longest_ns = 0;
    for (const strategy::PipelinePlan& pipeline : random.plan.pipelines) {
      const auto load = schedule::pipeline_load(pipeline, random.cost, random.world_size);
      longest_ns = std::max(longest_ns, schedule::schedule_pipeline(load).makespan_ns);
      deep += pipeline.pipeline.scheme.pp > 4 ? 1 : 0;
    }
    for (Node& node : graph.nodes) {
      if (node.at() == nullptr) node.duration_ns = 0;
    }
    run_clock(graph);
    ASSERT_EQ(graph.makespan_ns, longest_ns) << "seed " << seed << "\n" << to_text(graph);
    several += random.plan.pipelines.size() > 1 ? 1 : 0;
    between_nodes += random.world_size > random.cost.options().topology.node_ranks() ? 1 : 0;
  }
  EXPECT_GT(std::min({several, deep, between_nodes}), 100);
}

TEST(Build, UnknownPassIsRefused) {
  EXPECT_THROW(Small().build("<1,1,1>", {"30"}, 1, {.disabled_passes = {"clock"}}), base::InputError);
}

TEST(LinkPlans, SameStrategyIsMadeOnce) {
  Small small;
  LinkPlans plans;
  const BuildOptions options{.link_plans = &plans};
  const StepGraph first = small.build("<1,2,1>", {"30"}, 2, options);
  const StepGraph second = small.build("<1,2,1>", {"50, 60"}, 2, options);
  EXPECT_EQ(first.links, second.links);
}

// A micro-batch that only its policy makes fit is held against the credit of that policy.
TEST(Build, CreditIsThatOfThePlansPolicies) {
  auto random = random_case(7, {.max_lanes = 1});
  int64_t longest = 0;
  for (strategy::PipelinePlan& pipeline : random.plan.pipelines) {
    for (strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches) {
      micro_batch.memory.recompute_permille = 1000;
      longest = std::max(longest, micro_batch.tokens());
    }
  }
  cost::CostModel::Options options = random.cost.options();
  const auto held = [&](const strategy::MemoryPolicy& policy) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const strategy::PipelinePlan& pipeline : random.plan.pipelines) {
      const cost::CostModel cost = cost::CostModel(options).under(policy);
      least =
          std::min(least, cost::MemoryCost(cost, pipeline.pipeline.scheme).credit_tokens(random.world_size));
    }
    return least;
  };
  options.memory.device_bytes = 0;
  while (held({.recompute_permille = 1000}) < longest) options.memory.device_bytes += 1000;
  ASSERT_LT(held({}), longest);
  EXPECT_NO_THROW(build(random.plan, random.table, cost::CostModel(options), random.world_size));
}

}  // namespace
}  // namespace sluice::graph
