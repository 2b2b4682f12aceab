#include "study/run_scenario.h"

#include <algorithm>

#include "base/text.h"
#include "config/config_file.h"
#include "model/summary.h"
#include "session/data.h"
#include "session/low_precision_gemms.h"
#include "session/other_models.h"
#include "session/run_planning.h"
#include "session/sampling.h"
#include "study/sluice_system.h"

namespace sluice::study {

using base::text;

namespace {

// Adds batches, their sample and lengths, and the machine's costs for such data.
void draw(const config::RunConfig& config, int64_t steps, Scenario& scenario) {
  const session::Data data = session::open_data(config);
  scenario.inputs.cost = session::cost_of_data(config, data, scenario.inputs.cost);
  scenario.table.program = scenario.inputs.cost.program();
  session::PhasedSampler sampler = data.sampler();
  for (int64_t step = 0; step < steps; ++step) scenario.batches.push_back(sampler.next());
  for (const session::DataPhase& phase : data.phases) {
    for (const int64_t length : phase.sequence_lengths()) {
      scenario.lengths.add(length);
    }
  }
  scenario.inputs.devices =
      session::with_low_precision(config, data.sequence_lengths(), scenario.inputs.world_size,
                                  std::move(scenario.inputs.devices), scenario.inputs.cost);
  scenario.inputs.context_length = data.longest_sequence();
  scenario.inputs.sample_batches = data.sample_batches(scenario.inputs.seed);
}

std::vector<std::pair<std::string, std::string>> facts_of(const config::RunConfig& config,
                                                          const std::string& calibration,
                                                          const std::string& source,
                                                          const Scenario& scenario) {
  const model::Model& model = *config.model.resolved;
  std::vector<std::string> corpora;
  for (const auto& [prefix, weight] : config.data.train) corpora.push_back(prefix);
  return {
      {"cluster", text(scenario.inputs.world_size, " ranks, ", scenario.inputs.cluster.name)},
      {"model", text(model::size_text(model), ", ", base::human_count(scenario.table.size()), " parameters")},
      {"calibration", text(calibration, " (", source, ")")},
      {"corpus", base::join(corpora, ", ")},
      {"context", text(base::human_count(config.data.context_length), " tokens")},
      {"batch", text(base::human_count(config.data.tokens_per_step), " tokens")},
      {"seed", text(config.data.seed)}};
}

// The trained model gets the memory that other models leave.
void add_models_beside(const config::RunConfig& config, int64_t beside_bytes, Scenario& scenario) {
  if (beside_bytes == 0) return;
  std::vector<std::string> names;
  std::vector<session::OtherModel> models = session::other_models(config);
  for (const session::OtherModel& model : models)
    names.push_back(model.folder.empty() ? model.key : text(model.key, " ", model.folder.string()));
  const bool reference = session::needs_reference(config.rl);
  if (reference) names.emplace_back("the reference");
  scenario.facts.emplace_back("beside the model", text(base::human_bytes(static_cast<double>(beside_bytes)),
                                                       " a rank for ", base::join(names, ", ")));
  if (models.empty() && !reference) return;
  scenario.others = std::make_shared<OtherActs>(
      session::make_planner(sluice_options(scenario.inputs), scenario.inputs.cost), std::move(models),
      reference ? OtherActs::Reference::kEvaluated : OtherActs::Reference::kNone, beside_bytes);
}

}  // namespace

Scenario scenario_of_run(const config::RunConfig& config, const RunScenarioOptions& options) {
  session::RunMachine machine =
      session::machine_of(config, {.ranks = options.ranks, .calibration = options.calibration});
  const int world_size = machine.world_size;
  const int64_t beside_bytes =
      session::leave_room_beside(config, machine.calibration.options.memory, world_size);
  const int configured = options.max_cp > 0 ? options.max_cp : config.parallel.max_cp;
  const int max_cp = configured > 0 ? configured : world_size;
  check_options(options.steps, max_cp);
  SystemInputs inputs{.cluster = machine.cluster,
                      .world_size = world_size,
                      .cost = cost::CostModel(machine.calibration.options),
                      .max_cp = max_cp,
                      .seed = static_cast<uint64_t>(config.data.seed),
                      .planner = session::planner_options(config, world_size),
                      .devices = machine.devices};
  if (inputs.planner.method->plans_lanes()) inputs.planner.max_cp = max_cp;
  const std::string& name = options.calibration.empty() ? config.parallel.calibration : options.calibration;
  Scenario scenario{.inputs = std::move(inputs), .table = model::parameter_table(*config.model.resolved)};
  require_room(scenario.inputs.cost, world_size, config::longest_context(config));
  draw(config, options.steps, scenario);
  scenario.facts = facts_of(config, name, machine.calibration.source, scenario);
  add_models_beside(config, beside_bytes, scenario);
  scenario.made_from = {{"config", config::to_toml(config)},
                        {"ranks", world_size},
                        {"cluster", strategy::to_json(machine.cluster)},
                        {"calibration", name},
                        {"steps", options.steps},
                        {"max_cp", max_cp}};
  return scenario;
}

}  // namespace sluice::study
