// sluice plan: the plan of one step of a run, without running it.
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "config/run_config.h"
#include "report/plan_table.h"
#include "train/offline_plan.h"

namespace sluice::cli {

namespace {

struct Options {
  std::string config;
  std::vector<std::string> settings;
  std::string calibration;
  train::OfflinePlanOptions plan;
  std::filesystem::path out;
  bool json = false;
};

void run(const Options& options) {
  config::RunConfig config = config::read_config(options.config, options.settings);
  config::resolve_model(config);
  if (!options.calibration.empty()) config.parallel.calibration = options.calibration;
  if (config.parallel.calibration == "auto") {
    base::log_info(
        "nothing is measured here: planning with the analytic calibration; --calibration FILE takes "
        "a run's");
  }
  const strategy::StepPlan plan = train::plan_offline(config, options.plan);
  if (!options.out.empty()) base::write_json(options.out, strategy::to_json(plan));
  if (options.json) {
    std::cout << strategy::to_json(plan).dump() << "\n";
  } else {
    std::cout << report::plan_table(plan) << "\n";
  }
}

}  // namespace

void add_plan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "Plan one step of a run: strategy, pipelines, micro-batches");
  auto options = std::make_shared<Options>();
  command->add_option("--config", options->config, "Run configuration (TOML)")->required();
  command->add_option("--set", options->settings, "section.key=value, over the configuration; any number")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--step", options->plan.step, "Number of the step, counted from 0")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--ranks", options->plan.ranks, "Ranks; 0: as many as the configured strategies use")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--calibration", options->calibration,
                      "A calibration.json or \"analytic\" (default: what the configuration names)");
  command->add_option("--out", options->out, "Write plan.json here");
  command->add_flag("--json", options->json, "Print the content of plan.json instead of a table");
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli
