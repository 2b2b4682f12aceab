#include "study/scenario.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "cost/exchange.h"
#include "cost/memory_cost.h"
#include "model/summary.h"
#include "plan/memory_choice.h"
#include "session/memory_fit.h"

namespace sluice::study {

using base::text;

namespace {

std::vector<std::pair<std::string, std::string>> facts_of(const session::PlanningInputs& inputs) {
  const session::PlanningOptions& options = inputs.options;
  const model::Model& model = inputs.calibration.options.model;
  const int64_t parameters = model::parameter_table(model).size();
  return {{"cluster", text(options.gpus, " GPUs, ", inputs.cluster.name)},
          {"model", text(options.model.empty() ? "" : options.model + ": ", model::size_text(model), ", ",
                         base::human_count(parameters), " parameters", model.counted() ? ", counted" : "")},
          {"calibration", text(options.calibration, " (", inputs.calibration.source, ")")},
          {"corpus", text(base::human_count(static_cast<int64_t>(inputs.lengths.size())), " documents")},
          {"context", text(base::human_count(options.context_length), " tokens")},
          {"batch", text(base::human_count(options.tokens_per_step), " tokens")},
          {"seed", text(options.seed)}};
}

}  // namespace

void require_room(const cost::CostModel& cost, int world_size, int64_t context_length) {
  int64_t least = std::numeric_limits<int64_t>::max();
  std::string roomiest;
  for (const strategy::Scheme& scheme : plan::roomy_schemes(cost, world_size, world_size, world_size)) {
    if (cost::MemoryCost(cost, scheme).max_len_tokens(world_size) > 0) return;
    const int64_t bytes = cost::MemoryCost(cost, scheme).fixed_bytes(world_size);
    if (bytes < least) roomiest = strategy::to_text(scheme);
    least = std::min(least, bytes);
  }
  if (roomiest.empty()) {
    throw base::InfeasibleError(text("the calibration has no scheme for ", world_size, " GPUs: give more"));
  }
  throw base::InfeasibleError(
      text(world_size, " GPUs cannot hold the model: its parameters, gradients and optimiser states need ",
           base::human_bytes(static_cast<double>(least)), " a GPU even under ", roomiest,
           ", which leaves no room in ",
           base::human_bytes(static_cast<double>(cost.options().memory.device_bytes)),
           ": take more GPUs, or larger ones: for ", base::human_count(context_length), " tokens ",
           session::way_out({.cost = cost, .world_size = world_size, .length_tokens = context_length})));
}

void check_options(int64_t steps, int max_cp) {
  if (steps < 1) throw base::InputError(text("steps is ", steps, ": give 1 or more"));
  if (max_cp < 0) throw base::InputError(text("max_cp is ", max_cp, ": give 1 or more, or 0 for all ranks"));
}

Scenario scenario_of(const session::PlanningInputs& inputs, int64_t steps) {
  const session::PlanningOptions& options = inputs.options;
  check_options(steps, options.max_cp);
  const int max_cp = options.max_cp > 0 ? options.max_cp : options.gpus;
  const auto seed = static_cast<uint64_t>(options.seed);
  Scenario scenario{.inputs = {.cluster = inputs.cluster,
                               .world_size = options.gpus,
                               .cost = inputs.cost(),
                               .context_length = options.context_length,
                               .max_cp = max_cp,
                               .sample_batches = session::sample_batches(inputs.sequence_lengths(),
                                                                         options.tokens_per_step, seed),
                               .seed = seed,
                               .planner = {.candidates = inputs.strategies,
                                           .max_cp = 0,
                                           .max_fsdp = 0,
                                           .exchanges = cost::exchange_set(options.exchange)},
                               .devices = inputs.devices()},
                    .facts = facts_of(inputs),
                    .made_from = session::to_json(inputs)};
  scenario.table = model::parameter_table(inputs.calibration.options.model, scenario.inputs.cost.program());
  require_room(scenario.inputs.cost, options.gpus, options.context_length);
  corpus::Sampler sampler = inputs.sampler();
  for (int64_t step = 0; step < steps; ++step) scenario.batches.push_back(sampler.next());
  for (const int64_t length : inputs.sequence_lengths()) scenario.lengths.add(length);
  scenario.made_from["steps"] = steps;
  scenario.made_from["max_cp"] = max_cp;
  return scenario;
}

}  // namespace sluice::study
