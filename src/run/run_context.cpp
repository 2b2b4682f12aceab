#include "run/run_context.h"

#include <algorithm>
#include <numeric>

#include "layers/policy_loss.h"
#include "model/table_positions.h"
#include "rl/objective.h"
#include "run/head_loss.h"
#include "run/precision.h"
#include "runtime/connections.h"
#include "runtime/make_executor.h"
#include "session/other_models.h"
#include "survive/start_notices.h"

namespace sluice::run {

void RunContext::meet() {
  peers_.rendezvous();
  const auto starting = activity().own("starting");
  agreed_ = agreed_config(options_, control());
}

void RunContext::open_machine() {
  meet();
  const auto starting = activity().own("starting");
  device_.emplace(options_, *agreed_, base::Json(), peers_);
}

void RunContext::open() {
  meet();
  std::optional<survive::StartNotices> notices;
  if (rank() == 0) notices.emplace(activity());
  const auto starting = activity().own("starting");
  start_.emplace(options_, *agreed_, peers_);
  device_.emplace(options_, *agreed_, start_->state().calibration, peers_);
  planning_.emplace(options_, *agreed_, *start_, *device_, control());
  open_engine();
  reference_.emplace(config(), engine_->store(), control());
  open_parameters(config(), *start_, *reference_, engine_->store(), control());
  open_replicas();
}

namespace {

std::shared_ptr<const layers::Loss> loss_of(const config::RunConfig& config) {
  if (config.rl.algorithm == config::RlAlgorithm::kNone) return layers::with_z_loss(config.train.z_loss);
  if (!config.rl.rolls_out()) return layers::policy_loss({});
  const rl::Objective objective = rl::objective_of(config.rl);
  return layers::policy_loss({.clip_low = objective.clip_low,
                              .clip_high = objective.clip_high,
                              .dual_clip = objective.dual_clip,
                              .kl = objective.kl});
}

std::optional<layers::Distillation> distillation_of(const config::RunConfig& config) {
  const config::TeacherConfig& teacher = config.teacher;
  if (teacher.hf.empty()) return std::nullopt;
  layers::Distillation distillation{.divergence = teacher.divergence,
                                    .beta = teacher.beta,
                                    .temperature = teacher.temperature,
                                    .alpha = teacher.alpha,
                                    .teachers = {}};
  const std::vector<double> weights = session::teacher_weights(teacher);
  for (const session::OtherModel& model : session::teachers(config))
    distillation.teachers.push_back({weights[distillation.teachers.size()], model.common_rows});
  return distillation;
}

runtime::Connections pairs_of(Planning& planning, const std::vector<strategy::Strategy>& strategies,
                              int rank) {
  const graph::LinkMachine machine{planning.planner().options().world_size,
                                   planning.cost().options().topology};
  return runtime::connections(planning.table(), strategies, machine, rank, planning.link_plans());
}

}  // namespace

void RunContext::open_engine() {
  const config::RunConfig& config = planning_->config();
  const model::ParameterTable& table = planning_->table();
  runtime::Engine::Options options;
  options.precision = precision_of(config.train);
  options.codecs = config::wire_codecs(config);
  // Generated sequences may reach the end of the context, whatever the lengths of documents.
  const bool speaks = config.generates() || config.train.sample_every > 0;
  const int64_t context = config::longest_context(config);
  options.context_length =
      model::table_positions(table.model, context, speaks ? context : start_->data().longest_sequence());
  options.device = device_->device();
  options.loss = loss_of(config);
  options.distillation = distillation_of(config);
  if (config.head.labelled()) options.number_loss = label_loss(table.model);
  if (config.head.pairs()) options.number_loss = layers::found_gradient();
  options.temperature = config.rl.rolls_out() ? config.rl.temperature : 1;
  options.moe_aux_loss_coeff = config.train.moe_aux_loss_coeff;
  options.mtp_loss_weight = config.train.mtp_loss_weight;
  options.moments = config.optimizer.moments();
  options.counts_coactivations =
      config.parallel.expert_placement == config::ExpertPlacementPolicy::kByCoactivation;
  options.host_transport = &peers_.transport();
  const auto connecting = activity().shared("making the communicators");
  std::vector<strategy::Strategy> strategies = planning_->planner().options().candidates;
  if (speaks) {
    rollout_strategy_.emplace(*planning_, options_.launch.world_size);
    strategies.insert(strategies.end(), rollout_strategy_->candidates().begin(),
                      rollout_strategy_->candidates().end());
  }
  engine_ = std::make_unique<runtime::Engine>(
      table, strategies, device_->transport(),
      runtime::make_executor(device_->device(), peers_.executor_options()), options);
  // Hosts' transports connect all pairs when they start.
  if (!device_->device().is_cpu()) {
    runtime::Connections pairs = pairs_of(*planning_, strategies, rank());
    if (rollout_strategy_) runtime::add_generation(rollout_strategy_->candidates(), rank(), pairs);
    runtime::connect(*engine_->communicators(), strategies, pairs, device_->device());
  }
  std::vector<std::vector<std::string>> groups;
  for (const config::GroupConfig& group : config.optimizer.groups) groups.push_back(group.parameters);
  engine_->store().set_parameter_groups(model::parameter_group_runs(table, groups));
}

void RunContext::open_replicas() {
  const std::optional<survive::WorkerContext>& worker_context = start_->resumed().worker_context();
  // A critic's state is in checkpoints alone, so a run with a critic keeps no snapshots.
  const bool has_critic = config().rl.algorithm == config::RlAlgorithm::kPpo;
  if (!worker_context || options_.dry_run || has_critic) return;
  start_->resumed().share_companions(control());
  const transport::Launch& launch = options_.launch;
  std::vector<int> ranks(static_cast<size_t>(launch.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  SnapshotReplicas::Options options{.worker_context = *worker_context,
                                    .every = config().elastic.snapshot_every.value_or(0)};
  // All ranks use the same distance to their buddies, however many ranks their nodes have.
  const int fullest_node = std::ranges::max(control().gather(launch.local_size));
  if (fullest_node < launch.world_size) options.stride = fullest_node;
  const auto connecting = activity().shared("making the communicators");
  replicas_ = std::make_unique<SnapshotReplicas>(peers_.transport().communicator("replicas", ranks),
                                                 engine_->store(), options);
}

}  // namespace sluice::run
