// sluice simulate: simulates steps on a cluster that need not exist, under Sluice and other systems.
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/planning.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "corpus/lengths.h"
#include "graph/trace.h"
#include "report/run_files.h"
#include "study/comparison.h"
#include "study/run_scenario.h"
#include "study/system_kinds.h"

namespace sluice::cli {

namespace fs = std::filesystem;
using base::text;

namespace {

struct SimulateArguments {
  RunPlanningOptions run;
  session::PlanningOptions inputs;
  std::string calibration;  // empty: the configuration's, or "analytic"
  int64_t steps = 20;
  std::string compare;
  std::vector<int64_t> trace_steps;
  fs::path out;
  bool json = false;
};

std::vector<std::string> other_systems() {
  std::vector<std::string> names;
  for (const study::SystemKind& kind : study::system_kinds()) names.push_back(kind.name);
  names.erase(names.begin());  // Sluice itself
  return names;
}

study::Scenario scenario_of(const SimulateArguments& arguments) {
  if (!arguments.run.config.empty()) {
    config::RunConfig config =
        read_run_config(arguments.run.config, arguments.run.settings, HubFiles::kConfiguration);
    config::resolve_model(config, config::ModelUse::kPlan);
    log_counted(*config.model.resolved);
    return study::scenario_of_run(config, {.ranks = arguments.run.ranks,
                                           .calibration = arguments.calibration,
                                           .steps = arguments.steps,
                                           .max_cp = arguments.inputs.max_cp});
  }
  session::PlanningOptions inputs = arguments.inputs;
  if (!arguments.calibration.empty()) inputs.calibration = arguments.calibration;
  const session::PlanningInputs resolved = session::resolve_planning(with_model_folder(inputs));
  log_counted(resolved.calibration.options.model);
  return study::scenario_of(resolved, arguments.steps);
}

std::vector<study::SystemResult> compare_with_progress(const study::Scenario& scenario,
                                                       const SimulateArguments& arguments) {
  study::ComparisonOptions options{
      .systems = study::parse_systems(arguments.compare),
      .timeline_steps = {arguments.trace_steps.begin(), arguments.trace_steps.end()}};
  const auto systems = static_cast<int64_t>(options.systems.size());
  base::Progress progress("simulating", systems * arguments.steps);
  int64_t begun = 0;
  options.before_system = [&](const std::string& title) {
    base::log_info(text("choosing the configuration of ", title));
    progress.set(arguments.steps * begun++);
  };
  options.after_step = [&] { progress.advance(1); };
  options.explains_wire = true;
  std::vector<study::SystemResult> results = study::compare(scenario, options);
  progress.set(systems * arguments.steps);
  progress.finish();
  return results;
}

void write_traces(const std::vector<study::SystemResult>& results, const SimulateArguments& arguments) {
  for (const study::SystemResult& result : results) {
    const std::string suffix = result.run.name == "sluice" ? "" : "-" + result.run.name;
    for (size_t i = 0; i < result.timelines.size(); ++i) {
      const report::Timeline& timeline = result.timelines[i];
      const fs::path path = arguments.out / text("trace-", timeline.step, suffix, ".json");
      base::write_file_atomically(path,
                                  graph::chrome_trace(timeline.records, timeline.counters, timeline.note));
      if (!timeline.note.empty()) base::log_info(text(path.string(), " is ", timeline.note));
    }
  }
}

void check_trace_steps(const SimulateArguments& arguments) {
  for (const int64_t step : arguments.trace_steps) {
    if (step >= 0 && step < arguments.steps) continue;
    throw base::InputError(text("--trace-steps names step ", step, " but --steps ", arguments.steps,
                                " simulates 0 to ", arguments.steps - 1,
                                ": name one of these, or more steps"));
  }
}

void run(const SimulateArguments& arguments) {
  check_trace_steps(arguments);
  const study::Scenario scenario = scenario_of(arguments);
  const std::vector<study::SystemResult> results = compare_with_progress(scenario, arguments);
  const base::Json summary = study::simulation_json(scenario, results);
  if (!arguments.out.empty()) {
    base::make_directories(arguments.out);
    base::write_file_atomically(arguments.out / "simulation.json", corpus::lengths_text(summary));
    base::write_file_atomically(arguments.out / "metrics.jsonl", study::metrics_lines(results));
    write_traces(results, arguments);
    report::write_report(arguments.out, arguments.out / "report.html");
  }
  if (arguments.json) {
    std::cout << base::json_text(summary) << "\n";
  } else {
    std::cout << study::comparison_table(scenario, results);
  }
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("simulate", "Time steps on a cluster that one may not have, beside other systems");
  auto arguments = std::make_shared<SimulateArguments>();
  std::vector<CLI::Option*> inputs = add_planning_options(*command, arguments->inputs);
  inputs.push_back(add_strategies_option(*command, arguments->inputs, "Sluice's candidates"));
  add_run_options(*command, arguments->run,
                  "Ranks of the run; 0: all devices of the configured cluster, on \"local\" as many as its "
                  "strategies use",
                  inputs);
  command->add_option("--calibration", arguments->calibration,
                      "A calibration.json, a shipped fit or \"analytic\" (default: the configuration's; else "
                      "\"analytic\")");
  command
      ->add_option(
          "--max-cp", arguments->inputs.max_cp,
          "Largest CP degree, over whose ranks long sequences are cut (default: the configuration's; else "
          "all ranks')")
      ->check(within(1, 1 << 20));
  command->add_option("--steps", arguments->steps, "Steps, from the first on")
      ->check(within(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--compare", arguments->compare,
                      text("Other systems, by name and separated by commas, or \"all\": ",
                           base::join(other_systems(), ", ")));
  CLI::Option* out = add_output(*command, "--out", arguments->out, Output::kFolder,
                                "Write report, summary, metrics and traces here");
  command
      ->add_option("--trace-steps", arguments->trace_steps,
                   "Steps whose timelines are written, separated by commas")
      ->delimiter(',')
      ->needs(out);
  command->add_flag("--json", arguments->json, "Print the content of simulation.json instead of a table");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::cli
