// A run's basis for planning steps: prices and strategies, and its measurements of both while it runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  // Collective: measures the machine if necessary. All arguments outlive it. Throws on every rank, also if a
  // sequence of the run would be too long.
  Planning(const RunOptions& options, const AgreedConfig& agreed, const RunStart& start, RunDevice& device,
           survive::Control& control);

  // The agreed configuration, with "auto" strategies resolved.
  const config::RunConfig& config() const { return config_; }
  const base::Json& calibration() const { return calibration_; }
  const cost::CostModel& cost() const { return planner().cost(); }
  const std::vector<strategy::Device>& devices() const { return devices_; }  // by rank; none: alike
  // The model's table, with the stages that the cost model chose.
  const model::ParameterTable& table() const { return table_; }
  // Bytes that a rank owns beside the trained model (session::bytes_beside); all prices subtract them.
  int64_t beside_bytes() const { return beside_bytes_; }
  const plan::Planner& planner() const { return *planner_; }
  StepPlanners& step_planners() { return *step_planners_; }
  graph::LinkPlans& link_plans() { return link_plans_; }

  // The inputs for planning steps of the run's model.
  StepInputs inputs();
  // Puts this act in front of all later training steps, behind those that were added before. Its references
  // outlive this object. REQUIRES: no steps are planned yet.
  void add_earlier(const session::EarlierAct& act) { earlier_.push_back(act); }
  // The step graph if `ranks` ranks trained on the sequences, with strategies proposed for that number.
  // Infeasible, with the reason, for example if a sequence of the run would be too long for them.
  base::Feasible<graph::StepGraph> step_of_fewer(int ranks,
                                                 const std::vector<strategy::Sequence>& sequences) const;

 private:
  void keep_proposal(const Resumed& resumed);
  cost::CostModel::Options priced(survive::Control& control);
  // `progress`: told how far proposing is.
  plan::Planner planner_of(const config::RunConfig& config, int ranks,
                           std::function<void(const std::string& how_far)> progress = {}) const;
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
  std::vector<session::EarlierAct> earlier_;
};

}  // namespace sluice::run
