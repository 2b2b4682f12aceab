// What a run plans its steps with: prices, strategies, and what it learns of both as it goes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/feasible.h"
#include "base/json.h"
#include "graph/build.h"
#include "plan/planner.h"
#include "run/agreed_config.h"
#include "run/plan_ahead.h"
#include "run/run_device.h"
#include "run/run_options.h"
#include "run/run_start.h"
#include "run/step_planners.h"

namespace sluice::run {

class Planning {
 public:
  // Collective: measures the machine where it must. All outlive it. Throws on every rank, when a sequence of
  // the run would be too long, too.
  Planning(const RunOptions& options, const AgreedConfig& agreed, const RunStart& start, RunDevice& device,
           survive::Control& control);

  // As agreed, with the strategies that "auto" came to.
  const config::RunConfig& config() const { return config_; }
  const base::Json& calibration() const { return calibration_; }
  const cost::CostModel& cost() const { return planner().cost(); }
  const std::vector<strategy::Device>& devices() const { return devices_; }  // by rank; none: alike
  // The model's, of the stages that costs cut.
  const model::ParameterTable& table() const { return table_; }
  // What a rank owns beside the trained model (session::bytes_beside); off the device in all prices.
  int64_t beside_bytes() const { return beside_bytes_; }
  const plan::Planner& planner() const { return *planner_; }
  StepPlanners& step_planners() { return *step_planners_; }
  graph::LinkPlans& link_plans() { return link_plans_; }

  // For who plans steps.
  StepInputs inputs();
  // From now on training's steps have this act in front of them; it outlives this.
  void set_earlier(const session::EarlierAct& act) { earlier_ = &act; }
  const session::EarlierAct* earlier() const { return earlier_; }
  // How so many ranks would train on the sequences, with strategies that the run would find for them; why
  // they could not, where some sequence of the run would be too long for them.
  base::Feasible<graph::StepGraph> step_of_fewer(int ranks,
                                                 const std::vector<strategy::Sequence>& sequences) const;

 private:
  void keep_proposal(const Resumed& resumed);
  cost::CostModel::Options priced(survive::Control& control);
  plan::Planner planner_of(const config::RunConfig& config, int ranks) const;
  int world_size() const { return options_.launch.world_size; }

  const RunOptions& options_;
  const RunStart& start_;
  RunDevice& device_;
  config::RunConfig config_;
  model::ParameterTable table_;
  base::Json calibration_;
  int64_t beside_bytes_ = 0;
  std::vector<strategy::Device> devices_;
  std::optional<cost::CostModel> calibrated_;
  std::optional<plan::Planner> planner_;
  std::unique_ptr<StepPlanners> step_planners_;
  graph::LinkPlans link_plans_;
  const session::EarlierAct* earlier_ = nullptr;
};

}  // namespace sluice::run
