// The planner of a run configuration.
#include "base/log.h"
#include "cli/planning.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "train/offline_plan.h"

namespace sluice::cli {

Planning planning_of_run(const RunPlanningOptions& options) {
  config::RunConfig config = config::read_config(options.config, options.settings);
  config::resolve_model(config, config::ModelUse::kPlan);
  log_counted(*config.model.shape);
  if (!options.calibration.empty()) config.parallel.calibration = options.calibration;
  if (!options.method.empty()) config.parallel.method = options.method;
  if (config.parallel.calibration == "auto") {
    base::log_info(
        "nothing is measured here: planning with the analytic calibration; --calibration FILE takes "
        "a run's");
  }
  train::OfflinePlanning planning = train::offline_planning(config, options.ranks);
  Planning planned{std::move(planning.planner), planning.data.sampler()};
  if (config.elastic.enabled && planned.planner.options().world_size > 1)
    planned.buddy_every = config.elastic.buddy_every.value_or(0);
  return planned;
}

}  // namespace sluice::cli
