#include "study/run_scenario.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/sampling.h"
#include "config/strategy_file.h"
#include "corpus/blend.h"
#include "cost/analytic.h"
#include "cost/shipped.h"
#include "plan/batch_sample.h"

namespace sluice::study {

using base::InputError;
using base::text;

namespace {

strategy::Cluster cluster_of(const config::RunConfig& config, int ranks) {
  strategy::Cluster cluster = strategy::cluster_preset(config.cluster.preset, config.cluster.nodes);
  if (cluster.name == "local") {
    cluster.gpus_per_node = cluster.nics_per_node = config.parallel.gpus_per_node;
  }
  if (ranks > 0) cluster.nodes = (ranks + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
  constexpr double kGiB = 1 << 30;
  const config::MemoryConfig& memory = config.memory;
  if (memory.device_gib > 0) {
    cluster.device_memory_bytes = static_cast<int64_t>((memory.device_gib - memory.margin_gib) * kGiB);
    if (cluster.device_memory_bytes < 1) {
      throw InputError(text("[config] memory.margin_gib is ", memory.margin_gib,
                            ", which leaves nothing of memory.device_gib ", memory.device_gib, ": lower it"));
    }
  } else {
    cluster.device_memory_bytes = cluster.device_memory_bytes / 10 * 9;
  }
  return cluster;
}

cost::AnalyticMemory memory_of(const config::RunConfig& config, const strategy::Cluster& cluster) {
  const bool wide = config.train.dtype == "float64";
  return {.device_bytes = cluster.device_memory_bytes,
          .element_bytes = wide                               ? 8
                           : config.train.dtype == "bfloat16" ? 2
                                                              : 4,
          .accumulator_bytes = wide ? 8 : 4,
          .owner_bytes_per_parameter = wide ? 32 : 16,
          .host_bytes = cost::host_bytes_of(cluster)};
}

cost::Calibration analytic(const config::RunConfig& config, const SystemInputs& inputs) {
  std::set<int> degrees;
  for (int tp = 1; tp <= std::min(inputs.world_size, inputs.cluster.gpus_per_node); tp *= 2)
    degrees.insert(tp);
  for (const strategy::Strategy& candidate : inputs.strategies) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) degrees.insert(pipeline.scheme.tp);
  }
  std::erase_if(degrees, [&](int tp) { return !model::tp_fault(*config.model.shape, tp).empty(); });
  const std::vector<int> tp_degrees(degrees.begin(), degrees.end());
  return {
      inputs.cluster.name, "assumed rates of the cluster",
      cost::analytic_options(*config.model.shape, cost::rates_of(inputs.cluster),
                             memory_of(config, inputs.cluster), tp_degrees, inputs.cluster.gpus_per_node)};
}

cost::Calibration calibration_of(const config::RunConfig& config, const std::string& name,
                                 const SystemInputs& inputs) {
  if (name == "auto" || name == "analytic") return analytic(config, inputs);
  cost::Calibration calibration = cost::find_calibration(name);
  if (calibration.options.shape != *config.model.shape) {
    throw InputError(
        text("calibration ", name,
             " was measured for another model than the configuration's: give one of this model, or "
             "\"analytic\""));
  }
  calibration.options.gpus_per_node = inputs.cluster.gpus_per_node;
  if (config.memory.device_gib > 0) {
    calibration.options.memory.device_bytes = inputs.cluster.device_memory_bytes;
  }
  return calibration;
}

// Adds batches, their sample and the lengths.
void draw(const config::RunConfig& config, int64_t steps, Scenario& scenario) {
  if (config.data.train.empty()) {
    throw InputError("[config] data.train is empty: name at least one [prefix, weight] pair");
  }
  const corpus::Blend blend = corpus::Blend::open(config.data.train, {config.model.shape->vocab});
  corpus::Sampler sampler(blend.sources(), config::sampling_options(config.data));
  for (int64_t step = 0; step < steps; ++step) scenario.batches.push_back(sampler.next());
  std::vector<int64_t> sequences;
  for (const corpus::LengthSource& source : blend.sources()) {
    for (const int64_t length : source.lengths) {
      if (length >= 2) sequences.push_back(std::min(length, config.data.context_length));
    }
  }
  for (const int64_t length : sequences) scenario.lengths.add(length);
  scenario.inputs.context_length = scenario.lengths.longest();
  scenario.inputs.sample_batches = plan::stratified_batches(
      sequences,
      {.tokens_per_step = config.data.tokens_per_step, .seed = static_cast<uint64_t>(config.data.seed)});
}

std::vector<std::pair<std::string, std::string>> facts_of(const config::RunConfig& config,
                                                          const std::string& calibration,
                                                          const std::string& source,
                                                          const Scenario& scenario) {
  const model::Shape& shape = *config.model.shape;
  std::vector<std::string> corpora;
  for (const auto& [prefix, weight] : config.data.train) corpora.push_back(prefix);
  return {{"cluster", text(scenario.inputs.world_size, " ranks, ", scenario.inputs.cluster.name)},
          {"model", text(shape.layers, " layers, hidden ", shape.hidden, ", ",
                         base::human_count(scenario.table.size()), " parameters")},
          {"calibration", text(calibration, " (", source, ")")},
          {"corpus", base::join(corpora, ", ")},
          {"context", text(base::human_count(config.data.context_length), " tokens")},
          {"batch", text(base::human_count(config.data.tokens_per_step), " tokens")},
          {"seed", text(config.data.seed)}};
}

}  // namespace

Scenario scenario_of_run(const config::RunConfig& config, const RunScenarioOptions& options) {
  const int max_cp = options.max_cp > 0 ? options.max_cp : config.parallel.max_cp;
  check_options(options.steps, max_cp);
  const bool sized_by_strategies = options.ranks == 0 && config.cluster.preset == "local";
  const int ranks = sized_by_strategies ? config::ranks_needed(config.parallel.strategies) : options.ranks;
  const strategy::Cluster cluster = cluster_of(config, ranks);
  const int world_size = ranks > 0 ? ranks : cluster.gpus();
  SystemInputs inputs{.cluster = cluster,
                      .world_size = world_size,
                      .cost = cost::CostModel(cost::CostModel::Options{}),
                      .max_cp = max_cp,
                      .seed = static_cast<uint64_t>(config.data.seed),
                      .strategies = config::read_strategies(config.parallel.strategies, world_size)};
  const std::string& name = options.calibration.empty() ? config.parallel.calibration : options.calibration;
  const cost::Calibration calibration = calibration_of(config, name, inputs);
  inputs.cost = cost::CostModel(calibration.options);
  Scenario scenario{.inputs = std::move(inputs), .table = model::parameter_table(*config.model.shape)};
  require_room(scenario.inputs.cost, world_size);
  draw(config, options.steps, scenario);
  scenario.facts = facts_of(config, name, calibration.source, scenario);
  scenario.made_from = {{"config", config::to_toml(config)},
                        {"ranks", world_size},
                        {"cluster", strategy::to_json(cluster)},
                        {"calibration", name},
                        {"steps", options.steps},
                        {"max_cp", max_cp}};
  return scenario;
}

}  // namespace sluice::study
