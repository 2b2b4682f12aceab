#include "runtime/test_trunks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/memory.h"
#include "link/rows.h"
#include "model/outline.h"

namespace sluice::runtime {

TestTrunks::TestTrunks(const std::vector<TestTrunk>& trunks, int world_size,
                       const model::ParameterTable& table, const cost::CostModel::Options& machine)
    : world_size_(world_size) {
  for (const TestTrunk& trunk : trunks) {
    cost::CostModel::Options own = machine;
    own.trunk = trunk.run;
    std::vector<strategy::Strategy> strategies;
    for (const std::string& text : trunk.strategies)
      strategies.push_back(strategy::parse_strategy(text, world_size));
    trunks_.push_back({model::parameter_table(table.model, table.program.trunk(trunk.run)),
                       cost::CostModel(std::move(own)), std::move(strategies), trunk.policies,
                       std::make_unique<graph::LinkPlans>()});
  }
}

std::vector<TestTrunks::Act> TestTrunks::acts(int64_t step, graph::Purpose purpose, const PlanOf& plan,
                                              const TokensOf& tokens) {
  std::vector<Act> acts;
  for (Trunk& trunk : trunks_) {
    const strategy::StepPlan own =
        plan(trunk.strategies[static_cast<size_t>(step) % trunk.strategies.size()], trunk.policies);
    const auto built = [&](graph::Purpose of) {
      const graph::BuildOptions options{
          .purpose = of, .disabled_passes = {}, .link_plans = trunk.link_plans.get()};
      return std::make_unique<graph::StepGraph>(
          graph::build(own, trunk.table, trunk.cost, world_size_, options));
    };
    Act act;
    act.forward = built(graph::Purpose::kEvaluate);
    const bool trained = trunk.table.program.first_trained() < trunk.table.program.run().end;
    if (purpose == graph::Purpose::kTrain && trained) act.train = built(graph::Purpose::kTrain);
    act.tokens = tokens(*act.forward);
    acts.push_back(std::move(act));
  }
  return acts;
}

std::vector<TrunkStep> TestTrunks::steps(const std::vector<Act>& acts) {
  std::vector<TrunkStep> steps;
  for (const Act& act : acts) steps.push_back({act.forward.get(), act.train.get(), &act.tokens});
  return steps;
}

void TestTrunks::expect_proved(const std::vector<Act>& acts, const TrunksResult& result, int rank) const {
  if (acts.size() != 2 || trunks_.front().table.model.ties_head()) return;
  const auto at = static_cast<size_t>(rank);
  for (const TrunkAct& act : result.acts) {
    const graph::StepGraph& graph =
        act.purpose == graph::Purpose::kTrain ? *acts[act.trunk].train : *acts[act.trunk].forward;
    const cost::CostModel& cost = trunks_[act.trunk].cost;
    EXPECT_LE(act.result.peak_bytes,
              graph::predicted_memory(graph, cost)[at].peak_bytes + graph::trunk_row_bytes(graph, cost)[at])
        << "trunk " << act.trunk << " on rank " << rank;
  }
}

int64_t TestTrunks::row_bytes(const std::vector<Act>& acts) const {
  const model::Outline& outline = trunks_.front().table.model.outline();
  int64_t bytes = 0;
  for (size_t i = 0; i + 1 < acts.size(); ++i) {
    const int64_t rows = link::moved_rows(
        link::row_placement(acts[i].forward->plan, world_size_, link::RowEnd::kLastStage),
        link::row_placement(acts[i + 1].forward->plan, world_size_, link::RowEnd::kFirstStage));
    // Rows go forward and, if the trunk trains, come back as gradients.
    bytes += rows * outline.hidden * trunks_[i].cost.options().memory.element_bytes *
             (acts[i].train != nullptr ? 2 : 1);
  }
  return bytes;
}

}  // namespace sluice::runtime
