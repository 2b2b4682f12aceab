#include "run/offline_plan.h"

#include <algorithm>
#include <list>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "cost/snapshot_cost.h"
#include "profile/device.h"
#include "report/plan_table.h"
#include "run/calibration.h"
#include "run/other_tokenizers.h"
#include "run/precision.h"
#include "session/earlier_act.h"
#include "session/other_models.h"
#include "session/planned_step.h"
#include "session/run_planning.h"
#include "session/sampling.h"
#include "session/strategy_file.h"
#include "transport/launch.h"

namespace sluice::run {

namespace {

// This machine, with `ranks` on it.
session::RunMachine this_machine(config::RunConfig config, int ranks) {
  if (ranks == 0) ranks = session::ranks_needed(config.parallel.strategies);
  if (ranks == 0) {
    throw base::InputError(
        "parallel.strategies is \"auto\", which depends on the number of ranks: give --ranks N, or a "
        "cluster");
  }
  transport::Launch launch;
  launch.world_size = launch.local_size = ranks;
  config.train.device = config::DeviceChoice::kCpu;
  const profile::RankDevice device = profile::rank_device(
      config.train, config.memory, launch, profile::alike_cards(config.train, launch), /*self=*/0);
  session::RunMachine machine;
  machine.world_size = ranks;
  machine.calibration = unmeasured_calibration(
      {config, base::Json(), precision_of(config.train), device.device, device.memory_bytes}, ranks);
  machine.calibration.options.codecs = config::wire_codecs(config);
  machine.calibration.options.newton_schulz_steps = config.optimizer.matrix_steps();
  machine.calibration.options.whole_pulls = config.parallel.strategies.size() != 1;
  return machine;
}

// Subtracts snapshots from host memory, as in a run, if host memory is known.
void set_aside_snapshots(const config::RunConfig& config, session::RunMachine& machine) {
  int64_t& host_bytes = machine.calibration.options.memory.host_bytes;
  if (!config.elastic.enabled || machine.world_size < 2 || config.memory.host_gib > 0 || host_bytes == 0)
    return;
  const cost::CostModel cost(machine.calibration.options);
  host_bytes = std::max<int64_t>(1, host_bytes - cost::snapshot_cost(cost, machine.world_size).host_bytes);
}

}  // namespace

OfflinePlanning offline_planning(config::RunConfig config, int ranks, const corpus::IndexedOptions& corpora) {
  config::resolve_dtype(config, !session::is_local(config.cluster));
  session::RunMachine machine = session::is_local(config.cluster)
                                    ? this_machine(config, ranks)
                                    : session::machine_of(config, {.ranks = ranks});
  set_aside_snapshots(config, machine);
  const int64_t beside_bytes =
      session::leave_room_beside(config, machine.calibration.options.memory, machine.world_size);
  session::Data data = session::open_data(config, corpora);
  const cost::CostModel cost(machine.calibration.options);
  plan::Planner planner =
      session::make_planner(session::planner_options(config, data, cost, machine.world_size, machine.devices),
                            session::cost_of_data(config, data, cost));
  session::require_context(planner, data.longest_sequence());
  std::vector<session::TrunkPlanning> others;
  for (session::OtherModel& model : session::other_models(config)) {
    require_tokenizer(model, config);
    others.push_back(session::plan_beside(planner, std::move(model), beside_bytes));
    session::require_fit(others.back(),
                         config.generates() ? config::longest_context(config) : data.longest_sequence());
  }
  if (config.rl.rolls_out() && session::needs_reference(config.rl))
    others.push_back(session::reference_of(planner, beside_bytes));
  return {std::move(planner), std::move(data), std::move(others), beside_bytes};
}

std::string describe_first_step(const OfflinePlanning& planning) {
  const plan::Planner& planner = planning.planner;
  const cost::CostModel& cost = planner.cost();
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  graph::LinkPlans links;
  std::list<graph::LinkPlans> links_of_acts;
  std::vector<session::EarlierAct> earlier;
  for (const session::TrunkPlanning& trunk : planning.others) {
    if (trunk.model.leaves_rows) earlier.push_back(session::earlier_act(trunk, links_of_acts.emplace_back()));
  }
  session::try_longest(planner, table, planning.data, links, earlier);
  session::PhasedSampler batches = planning.data.sampler();
  const corpus::Batch batch = batches.next();
  const session::BuiltStep step = session::build_step(
      planner, table, batch.step, session::sequences_of(batch.samples, cost.options().model.head()),
      {.link_plans = &links}, earlier);
  int64_t step_ns = step.graph.makespan_ns;
  for (const graph::StepGraph& act : step.earlier) step_ns += act.makespan_ns;
  return report::plan_table(step.plan, step_ns);
}

}  // namespace sluice::run
