// For tests: the trunks of a model, each with a plan and graphs of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/build.h"
#include "runtime/trunk_step.h"

namespace sluice::runtime {

// As in RunOptions.
struct TestTrunk {
  base::Interval run;
  std::vector<std::string> strategies;
  std::vector<strategy::MemoryPolicy> policies;
};

class TestTrunks {
 public:
  TestTrunks(const std::vector<TestTrunk>& trunks, int world_size, const model::ParameterTable& table,
             const cost::CostModel::Options& machine);

  // One trunk's part of a step.
  struct Act {
    std::unique_ptr<graph::StepGraph> forward;
    std::unique_ptr<graph::StepGraph> train;  // null: nothing is trained
    StepTokens tokens;
  };
  using PlanOf = std::function<strategy::StepPlan(const strategy::Strategy&,
                                                  const std::vector<strategy::MemoryPolicy>&)>;
  using TokensOf = std::function<StepTokens(const graph::StepGraph&)>;
  std::vector<Act> acts(int64_t step, graph::Purpose purpose, const PlanOf& plan, const TokensOf& tokens);
  static std::vector<TrunkStep> steps(const std::vector<Act>& acts);

  // Bytes that row links carry between ranks in a step, by theory.
  int64_t row_bytes(const std::vector<Act>& acts) const;
  // Expects acts of two trunks without common buckets to take no more memory than their proofs and rows.
  void expect_proved(const std::vector<Act>& acts, const TrunksResult& result, int rank) const;

 private:
  struct Trunk {
    model::ParameterTable table;
    cost::CostModel cost;
    std::vector<strategy::Strategy> strategies;
    std::vector<strategy::MemoryPolicy> policies;
    std::unique_ptr<graph::LinkPlans> link_plans;
  };
  int world_size_;
  std::vector<Trunk> trunks_;
};

}  // namespace sluice::runtime
