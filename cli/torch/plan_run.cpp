// The planner of a run configuration.
#include "base/log.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/planning.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "run/offline_plan.h"
#include "session/prompt_responses.h"
#include "session/sampling.h"

namespace sluice::cli {

Planning planning_of_run(const RunPlanningOptions& options) {
  config::RunConfig config = read_run_config(options.config, options.settings, HubFiles::kConfiguration);
  config::resolve_model(config, config::ModelUse::kPlan);
  log_counted(*config.model.resolved);
  if (!options.calibration.empty()) config.parallel.calibration = options.calibration;
  if (options.method) config.parallel.method = *options.method;
  if (config.parallel.calibration == "auto") {
    base::log_info(
        "nothing is measured here: planning with the analytic calibration; --calibration FILE takes "
        "a run's");
  }
  run::OfflinePlanning planning = run::offline_planning(config, options.ranks, corpus_places());
  Planning planned{std::move(planning.planner), planning.data.sampler()};
  if (config.elastic.enabled && planned.planner.options().world_size > 1)
    planned.snapshot_every = config.elastic.snapshot_every.value_or(0);
  planned.others = std::move(planning.others);
  planned.beside_bytes = planning.beside_bytes;
  if (config.rl.rolls_out()) {
    corpus::Sampler prompts(planning.data.phases.front().training.sources(),
                            session::one_by_one(planning.data.phases.front().sampling));
    std::vector<int64_t> lengths;
    while (std::ssize(lengths) < config.rl.prompts_per_step) {
      const int64_t length = prompts.next().samples.front().length_tokens;
      if (length < config.data.context_length) lengths.push_back(length);
    }
    const plan::Planner& planner = planned.planner;
    planned.rollout = {session::rollout_schemes_of(config, planner.cost(), planner.options().world_size),
                       session::expected_load(config, lengths), config.rl.updates_per_rollout,
                       session::shares_prompts(config, planner.cost().options().model)};
  }
  return planned;
}

}  // namespace sluice::cli
