#include "train/run_context.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"
#include "config/config_file.h"
#include "layers/policy_loss.h"
#include "model/table_positions.h"
#include "rl/objective.h"
#include "runtime/make_executor.h"
#include "session/run_planning.h"
#include "session/unequal_devices.h"
#include "train/calibration.h"
#include "train/held_model.h"
#include "train/precision.h"

namespace sluice::train {

using base::text;

void RunContext::open_machine() {
  peers_.meet();
  const auto starting = activity().own("starting");
  read_configuration();
  compare_configurations();
  device_.emplace(options_, table_, base::Json(), peers_);
}

void RunContext::open() {
  peers_.meet();
  const auto starting = activity().own("starting");
  read_configuration();
  compare_configurations();
  open_corpora();
  if (!options_.dry_run) peers_.take_directory();
  resume();
  device_.emplace(options_, table_, resumed().calibration, peers_);
  open_planner();
  open_engine();
  open_parameters();
  open_buddies();
}

void RunContext::read_configuration() {
  control().together("reading the configuration", [&] {
    if (options_.failure) std::rethrow_exception(options_.failure);
    config::resolve_model(config_);
    drop_strategies_of_more_ranks();
    table_ = model::parameter_table(*config_.model.shape);
    session::configured_strategies(config_, options_.launch.world_size);
  });
}

// An epoch may have fewer ranks than the run was configured for.
void RunContext::drop_strategies_of_more_ranks() {
  std::vector<std::string>& strategies = config_.parallel.strategies;
  if (epoch() == 0 || strategies.empty()) return;
  try {
    session::configured_strategies(config_, options_.launch.world_size);
  } catch (const base::InputError& error) {
    if (rank() == 0)
      base::log_warning(text("parallel.strategies do not fit: ", error.what(), "; others are proposed"));
    strategies.clear();
    config_.parallel.select = {};
  }
}

// Everything that decides the numbers must be the same on all ranks: a different learning rate would train
// each owner slice differently, a different eval_every would pair up different collectives.
void RunContext::compare_configurations() {
  config::RunConfig shared = config_;
  shared.train.threads = 0;
  shared.log = {};
  shared.log.trace_steps = config_.log.trace_steps;
  control().require_same(
      "comparing configurations", base::hash_bytes(config::to_toml(shared)), [](int other) {
        return text("rank ", other,
                    " has another configuration than rank 0: give all ranks the same file and --set options");
      });
}

// Each rank reads its own copy of what may be different files: a node's own disk.
void RunContext::open_corpora() {
  base::CanonicalBytes all;
  control().together("opening the corpora", [&] {
    data_ = session::open_data(config_);
    for (const session::DataPhase& phase : data_->phases) {
      corpora_.push_back(corpus::identities(phase.training));
      all.add(corpus::to_json(corpora_.back()).dump());
    }
  });
  control().require_same("comparing corpora", all.hash(), [](int other) {
    return text("the corpora of rank ", other,
                " have other tokens than those of rank 0: ", "copy the same files to all machines");
  });
}

void RunContext::resume() {
  resumed_.find(control());
  const checkpoint::Checkpoint* checkpoint = resumed_.checkpoint();
  if (checkpoint == nullptr || resumed().corpora.empty()) return;
  control().together("comparing corpora with the checkpoint's", [&] {
    const int64_t last_step = std::max<int64_t>(0, resumed().step - 1);
    corpus::require_same(resumed().corpora, corpora_at(last_step), data_->at(last_step).training,
                         checkpoint->directory().string());
  });
}

void RunContext::open_planner() {
  keep_proposal();
  const CalibrationRequest request{config_, resumed().calibration, precision_of(config_.train),
                                   device_->device(), device_->memory_bytes()};
  cost::Calibration calibration = calibrate(request, device_->transport(), control());
  devices_ = measured_devices(request, control());
  if (!devices_.empty() && rank() == 0)
    base::log_info(base::text("a product takes ", session::to_text(session::runs_of(devices_))));
  cost::MemoryModel& memory = calibration.options.memory;
  memory.device_bytes -= device_->taken_bytes(control());
  memory.host_bytes = device_->host_bytes();
  memory.attention_bytes = device_->attention_scratch().bytes;
  memory.attention_bytes_per_token = device_->attention_scratch().bytes_per_row;
  calibration.options.codecs = config::wire_codecs(config_);
  calibration.options.whole_pulls = config_.parallel.strategies.size() != 1;
  calibration_ = cost::to_json(calibration, {}, options_.launch.world_size);
  control().together("planning", [&] {
    calibrated_.emplace(calibration.options);
    planner_ = planner_of(config_, options_.launch.world_size);
    step_planners_ = std::make_unique<StepPlanners>(*planner_);
    table_.program = planner_->cost().program();
    session::require_context(*planner_, data_->longest_sequence());
    config_.parallel.proposed = config_.parallel.proposed || config_.parallel.strategies.empty();
    config_.parallel.strategies.clear();  // "auto" is resolved from here on
    for (const strategy::Strategy& candidate : planner_->options().candidates) {
      config_.parallel.strategies.push_back(strategy::to_text(candidate));
    }
  });
}

plan::Planner RunContext::planner_of(const config::RunConfig& config, int ranks) const {
  session::PlanningTask task =
      session::task_of(config, *data_, *calibrated_, ranks,
                       ranks == options_.launch.world_size ? devices_ : std::vector<strategy::Device>());
  task.choices.offload_saves_lanes = !device_->device().is_cpu();
  return session::make_planner(task);
}

base::Feasible<graph::StepGraph> RunContext::step_of_fewer(
    int ranks, const std::vector<strategy::Sequence>& sequences) const {
  config::RunConfig config = config_;
  config.parallel.strategies.clear();
  config.parallel.select = {};
  try {
    const plan::Planner planner = planner_of(config, ranks);
    session::require_context(planner, data_->longest_sequence());
    base::Feasible<strategy::StepPlan> plan = planner.try_plan(0, sequences);
    if (!plan) return plan.none();
    return graph::try_build(*plan, table_, planner.cost(), ranks);
  } catch (const base::InfeasibleError& error) {
    return base::Infeasible{error.what()};
  }
}

// A proposal depends on free memory and the moment; a run that continues on as many ranks, and asks for the
// same, keeps its own.
void RunContext::keep_proposal() {
  config::ParallelConfig& own = config_.parallel;
  if (!own.strategies.empty() || !resumed_.config() || resumed_.ranks() != options_.launch.world_size) return;
  const config::ParallelConfig& earlier = resumed_.config()->parallel;
  if (!earlier.proposed || earlier.method != own.method || earlier.max_cp != own.max_cp ||
      earlier.share != own.share || earlier.exchange != own.exchange)
    return;
  own.strategies = earlier.strategies;
  own.proposed = true;
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

}  // namespace

void RunContext::open_engine() {
  runtime::Engine::Options options;
  options.precision = precision_of(config_.train);
  options.codecs = config::wire_codecs(config_);
  options.context_length = model::table_positions(*config_.model.shape, config::longest_context(config_),
                                                  data_->longest_sequence());
  options.device = device_->device();
  options.loss = loss_of(config_);
  options.temperature = config_.rl.rolls_out() ? config_.rl.temperature : 1;
  options.balance_loss = config_.train.balance_loss;
  options.moments = config_.optimizer.moments;
  options.asks_together = config_.parallel.place_experts == config::PlaceExperts::kTogether;
  options.host_transport = &peers_.transport();
  runtime::HostExecutor::Options executor;
  executor.on_failure = [this](std::exception_ptr failure) { peers_.end_process(failure); };
  executor.watch = &peers_.nodes();
  const auto connecting = activity().shared("making the communicators");
  std::vector<strategy::Strategy> strategies = planner_->options().candidates;
  if (config_.rl.rolls_out() || config_.train.sample_every > 0) {
    for (strategy::Strategy& candidate : speaking_candidates()) strategies.push_back(std::move(candidate));
  }
  engine_ = std::make_unique<runtime::Engine>(table_, strategies, device_->transport(),
                                              runtime::make_executor(device_->device(), std::move(executor)),
                                              options);
  std::vector<std::vector<std::string>> groups;
  for (const config::GroupConfig& group : config_.optimizer.groups) groups.push_back(group.parameters);
  engine_->store().set_learning(model::learning_runs(table_, groups));
}

bool RunContext::needs_reference() const {
  return config_.rl.prefers() || (config_.rl.rolls_out() && config_.rl.kl > 0);
}

void RunContext::initialize_parameters() {
  runtime::initialize(engine_->store(),
                      static_cast<uint64_t>(config_.model.seed.value_or(config_.data.seed)));
}

// What a run without a checkpoint begins with.
void RunContext::begin_parameters() {
  const bool whole = !config_.model.hf.empty() && checkpoint::has_hugging_face_weights(config_.model.hf);
  // Adapters are in no model folder.
  if (!whole || table_.shape.lora.rank > 0) initialize_parameters();
  if (whole) load_weights();
}

void RunContext::exchange_reference() {
  runtime::ParameterStore& store = engine_->store();
  for (size_t bucket = 0; bucket < reference_.size(); ++bucket) {
    const auto index = static_cast<int>(bucket);
    if (!table_.buckets[bucket].trained) continue;
    store.wait_for_readers(index);
    const at::Tensor own = store.owner(index).master.clone();
    store.owner(index).master.copy_(reference_[bucket]);
    reference_[bucket].copy_(own);
  }
  store.refresh_compute_copies();
}

// Where nobody says which, all that hold the model beside what ranks own and the cache; those of fewest ranks
// until a rollout's lengths are known.
std::vector<strategy::Strategy> RunContext::speaking_candidates() {
  const int ranks = options_.launch.world_size;
  saying_ = session::saying_of(config_, cost(), ranks);
  std::vector<strategy::Strategy> candidates;
  if (!config_.parallel.speaking.empty()) {
    candidates = {
        speaking_strategy(config_.parallel.speaking, table_.shape, ranks, "[config] parallel.speaking")};
    const std::vector<strategy::Pipeline>& pipelines = candidates.front().pipelines;
    saying_->schemes.clear();  // nothing is left to choose; what different pipelines take is not known
    if (std::ranges::all_of(pipelines,
                            [&](const auto& each) { return each.scheme == pipelines.front().scheme; }))
      saying_->schemes = {pipelines.front().scheme};
  } else {
    for (const strategy::Scheme& scheme : saying_->schemes)
      candidates.push_back(inference::SayingLayout{scheme, ranks / scheme.ranks()}.strategy());
  }
  speaking_ = candidates.front();
  return candidates;
}

std::optional<inference::SayingLayout> RunContext::speak_as_suits(
    std::span<const int64_t> prompts, const std::vector<std::vector<int64_t>>& said_before) {
  const std::optional<inference::SayingLayout> best =
      saying_->best_for(cost(), session::expected_load(config_, prompts, said_before));
  if (best) speaking_ = best->strategy();
  return best;
}

generate::HeldModel RunContext::hold_speaking() {
  const runtime::ParameterStore::Options& store = engine_->store().options();
  const graph::LinkMachine links{options_.launch.world_size, cost().options().topology};
  return held_model(
      table_, engine_->hold(*speaking_, link_plans_->of(table_, *speaking_, links)),
      at::TensorOptions().dtype(runtime::scalar_type(store.precision.compute)).device(store.device));
}

void RunContext::open_parameters() {
  if (needs_reference()) {
    control().together("loading the reference", [&] {
      begin_parameters();
      for (const model::Bucket& bucket : table_.buckets) {
        const at::Tensor& master = engine_->store().owner(bucket.index).master;
        reference_.push_back(bucket.trained ? master.clone() : at::Tensor());
      }
    });
  }
  if (resumed_.from_snapshot()) {
    const auto restoring = activity().shared("taking up the snapshots");
    return restore(*options_.seat, control().communicator(), engine_->store());
  }
  control().together("loading the parameters", [&] {
    checkpoint::Checkpoint* checkpoint = resumed_.checkpoint();
    if (checkpoint == nullptr && reference_.empty()) begin_parameters();
    if (checkpoint == nullptr) return;
    // Adapters are in checkpoints only once they were trained.
    if (table_.shape.lora.rank > 0) initialize_parameters();
    load_parameters(*checkpoint, engine_->store());
  });
  resumed_.close_checkpoint();
}

void RunContext::load_weights() {
  const checkpoint::HuggingFaceModel weights(config_.model.hf);
  runtime::load_masters(engine_->store(), [&](int bucket, base::Interval interval, float* values) {
    weights.read(table_.buckets[static_cast<size_t>(bucket)], interval, values);
  });
}

void RunContext::open_buddies() {
  if (!options_.seat || options_.dry_run) return;
  resumed_.share_companions(control());
  const transport::Launch& launch = options_.launch;
  std::vector<int> ranks(static_cast<size_t>(launch.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Buddies::Options options{.seat = *options_.seat, .every = config_.elastic.buddy_every.value_or(0)};
  if (!launch.single_host()) options.stride = launch.local_size;
  const auto connecting = activity().shared("making the communicators");
  buddies_ =
      std::make_unique<Buddies>(peers_.transport().communicator("buddies", ranks), engine_->store(), options);
}

StepInputs RunContext::planning() const {
  base::CanonicalBytes all;
  all.add(options_.launch.world_size).add(config::to_toml(config_)).add(calibration_.dump());
  return {.planner = *planner_,
          .table = table_,
          .world_size = options_.launch.world_size,
          .rank = rank(),
          .link_plans = link_plans_.get(),
          .plans = options_.seat ? options_.seat->plans : nullptr,
          .planner_hash = all.hash(),
          .learnt = step_planners_.get()};
}

session::PhasedSampler RunContext::sampler() const {
  session::PhasedSampler sampler = data_->sampler();
  if (resumed().sampler) {
    sampler.restore(*resumed().sampler);
  } else {
    sampler.skip(resumed().step);
  }
  return sampler;
}

}  // namespace sluice::train
