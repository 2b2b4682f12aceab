#include "run/evaluator.h"

#include <ATen/Parallel.h>

#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "layers/head.h"
#include "layers/make_operation.h"
#include "layers/number_head.h"
#include "layers/operation.h"
#include "ops/device.h"
#include "plan/planner.h"
#include "profile/device.h"
#include "run/head_loss.h"
#include "run/model_shard.h"
#include "run/plan_ahead.h"
#include "run/precision.h"
#include "run/text_steps.h"
#include "runtime/engine.h"
#include "runtime/make_executor.h"
#include "session/run_planning.h"
#include "survive/control.h"
#include "survive/start_notices.h"
#include "transport/device_transport.h"
#include "transport/gloo.h"

namespace sluice::run {

namespace {

// A planner for a device that holds any batch: the caller limits memory by the batches that it passes in.
plan::Planner planner_of(const model::Model& model, const EvaluatorOptions& options) {
  const int ranks = options.launch.world_size;
  config::RunConfig config;
  config.model.resolved = model;
  config.parallel.strategies = {options.strategy.empty() ? base::text(ranks, "x<1,1,1>") : options.strategy};
  cost::AnalyticMemory memory;
  memory.device_bytes = int64_t{1} << 46;
  plan::PlannerOptions planner;
  planner.world_size = ranks;
  planner.candidates = session::configured_strategies(config, ranks);
  const std::vector<int> degrees = session::tensor_parallel_degrees(config, ranks);
  return {planner, cost::CostModel(cost::analytic_options(model, cost::Rates{}, memory, degrees,
                                                          options.launch.local_size))};
}

}  // namespace

class Evaluator::Impl {
 public:
  Impl(ModelSource& model, const EvaluatorOptions& options)
      : table_(model::parameter_table(model.model())),
        launch_(options.launch),
        planner_(planner_of(table_.model, options)),
        transport_(transport::gloo_transport({.launch = options.launch})),
        precision_(precision_of({.dtype = options.dtype})),
        context_length_(options.context_length) {
    config::TrainConfig train;
    train.threads = options.threads;
    train.device = options.device;
    config::MemoryConfig memory;
    memory.margin_gib = 0;
    std::vector<int> all(static_cast<size_t>(launch_.world_size));
    std::iota(all.begin(), all.end(), 0);
    ranks_ = transport_->communicator("ranks", all);
    const profile::RankDevice rank =
        profile::rank_device(train, memory, launch_, cards_of(train), launch_.rank);
    device_ = rank.device;
    at::set_num_threads(rank.threads);
    if (device_.is_cuda()) {
      ops::prepare_device(device_);
      device_transport_ = transport::device_transport(*transport_, {.device = device_.index()}).transport;
    }
    runtime::Engine::Options engine;
    engine.device = device_;
    engine.host_transport = transport_.get();
    engine.precision = precision_;
    engine.context_length = context_length_;
    engine.number_loss = label_loss(table_.model);
    engine.trains = false;
    engine_ = std::make_unique<runtime::Engine>(table_, planner_.options().candidates,
                                                device_transport_ ? *device_transport_ : *transport_,
                                                runtime::make_executor(device_, {}), engine);
    load(model);
  }

  comm::Communicator& ranks() { return *ranks_; }

  EvaluationResult evaluate(const corpus::Blend& blend, const std::vector<corpus::Sample>& samples) {
    const PreparedStep step = prepare_step({planner_, table_, launch_.world_size, launch_.rank, &link_plans_},
                                           blend, 0, samples, graph::Purpose::kEvaluate);
    const bool has_numbers = !table_.model.has_vocabulary();
    runtime::RowFigures rows;
    const runtime::StepResult result =
        engine_->evaluate(step.graph, step.tokens, has_numbers ? &rows : nullptr);
    // A plan keeps the order of the samples.
    EvaluationResult told{.loss_sum = result.loss_sum, .targets = result.targets};
    if (has_numbers) {
      told.numbers =
          sequence_numbers(step.plan, launch_.world_size, launch_.rank, step.tokens, rows,
                           [this](const std::string& own) { return survive::gather_texts(*ranks_, own); });
    }
    return told;
  }

  std::vector<std::vector<double>> text_numbers(const std::vector<std::vector<int32_t>>& texts) {
    std::vector<GroupText> own;
    for (const std::vector<int32_t>& tokens : texts) own.push_back({tokens, {}});
    const PreparedStep step =
        prepare_texts({planner_, table_, launch_.world_size, launch_.rank, &link_plans_}, own, 0,
                      graph::Purpose::kEvaluate);
    runtime::RowFigures rows;
    engine_->evaluate(step.graph, step.tokens, &rows);
    return numbers_by_text(step, launch_.world_size, launch_.rank, rows,
                           [this](const std::string& from) { return survive::gather_texts(*ranks_, from); });
  }

  void reload(const std::function<ModelSource()>& open);
  generate::ModelShard held();
  at::Tensor logits(const std::vector<int64_t>& tokens);

 private:
  void load(ModelSource& model);
  // The devices of all ranks.
  std::vector<profile::DeviceCard> cards_of(const config::TrainConfig& train) {
    const profile::DeviceCard own = profile::device_card(train, launch_);
    std::vector<profile::DeviceCard> cards(static_cast<size_t>(launch_.world_size));
    ranks_->all_gather(&own, cards.data(), sizeof own)->wait();
    return cards;
  }
  // InputError on all ranks if any rank has a fault: its own, or a note that another rank has one.
  void require_all_open(const std::string& fault);

  model::ParameterTable table_;
  transport::Launch launch_;
  plan::Planner planner_;
  std::unique_ptr<comm::Transport> transport_;
  std::unique_ptr<comm::Transport> device_transport_;  // null on the CPU
  std::unique_ptr<comm::Communicator> ranks_;
  runtime::Precision precision_;
  c10::Device device_ = c10::kCPU;
  int64_t context_length_;
  graph::LinkPlans link_plans_;
  std::unique_ptr<runtime::Engine> engine_;
  bool held_ = false;  // a shard is held, on several ranks
};

void Evaluator::Impl::require_all_open(const std::string& fault) {
  const char failed = fault.empty() ? 0 : 1;
  std::vector<char> all(static_cast<size_t>(ranks_->size()));
  ranks_->all_gather(&failed, all.data(), 1)->wait();
  if (failed != 0) throw base::InputError(fault);
  const auto other = std::ranges::find(all, 1);
  if (other != all.end())
    throw base::InputError(base::text("rank ", other - all.begin(), " can't open the newer model"));
}

void Evaluator::Impl::load(ModelSource& model) {
  survive::Activity activity;
  const auto loading =
      activity.own(base::text("loading ", base::human_count(table_.size()), " parameters of ", model.name()));
  std::optional<survive::StartNotices> notices;
  if (launch_.rank == 0) notices.emplace(activity);
  model.load(engine_->store(), activity);
}

void Evaluator::Impl::reload(const std::function<ModelSource()>& open) {
  ModelSource model;
  std::string fault;
  try {
    model = open();
    if (model.model() != table_.model)
      fault = base::text(model.name(), " is a model of another shape: start anew with it");
  } catch (const base::Error& error) {
    fault = error.what();
  }
  require_all_open(fault);
  load(model);
  // Renews a held shard at the same addresses, so that its users see the new weights.
  if (held_) held();
}

generate::ModelShard Evaluator::Impl::held() {
  const at::TensorOptions like =
      at::TensorOptions().dtype(runtime::scalar_type(precision_.compute)).device(device_);
  if (launch_.world_size > 1) {
    const strategy::Strategy& strategy = planner_.options().candidates.front();
    held_ = true;
    return run::model_shard(
        table_,
        engine_->hold(strategy, link_plans_.of(table_, strategy, {launch_.world_size, launch_.local_size})),
        like);
  }
  // The weights of a bucket: one rank owns all of each bucket.
  return {table_, layers::layer_context(table_.model, {}, context_length_, like),
          [this](int bucket) { return engine_->store().compute_copy(bucket); }, like};
}

at::Tensor Evaluator::Impl::logits(const std::vector<int64_t>& tokens) {
  const generate::ModelShard model = held();
  layers::Flow flow;
  flow.layout = layers::row_layout({{static_cast<int64_t>(tokens.size()), 0}}, 1, device_,
                                   layers::reach_of(table_.model));
  flow.id_T = layers::row_values(tokens, flow.layout, device_);
  for (int64_t position = 0; position < table_.program.head(); ++position) {
    layers::make_operation(model.context, table_, position, model.weights, {})
        ->forward(flow, layers::Purpose::kEvaluate);
  }
  const layers::OperationShards shards(table_, table_.program.head(), model.weights,
                                       layers::OperationShards::Of::kWeights, {});
  const layers::HeadParameters head = layers::head_parameters(shards);
  if (!table_.model.has_vocabulary()) {
    flow.targets = layers::targets(std::vector<int64_t>(tokens.size(), 0), {}, device_);
    return layers::head_numbers(model.context, head, flow.activation_SH, flow.targets, flow.layout.sequences)
        .cpu();
  }
  return layers::head_logits(model.context, head, flow.activation_SH).cpu();
}

Evaluator::Evaluator(ModelSource& model, const EvaluatorOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
Evaluator::~Evaluator() = default;

EvaluationResult Evaluator::evaluate(const corpus::Blend& blend, const std::vector<corpus::Sample>& samples) {
  return impl_->evaluate(blend, samples);
}

std::vector<std::vector<double>> Evaluator::text_numbers(const std::vector<std::vector<int32_t>>& texts) {
  return impl_->text_numbers(texts);
}

void Evaluator::reload(const std::function<ModelSource()>& open) { impl_->reload(open); }

generate::ModelShard Evaluator::model_shard() { return impl_->held(); }

comm::Communicator& Evaluator::ranks() { return impl_->ranks(); }

void Evaluator::wait_for_all() {
  const char here = 0;
  std::vector<char> all(static_cast<size_t>(ranks().size()));
  ranks().all_gather(&here, all.data(), 1)->wait();
}

at::Tensor Evaluator::logits(const std::vector<int64_t>& tokens) { return impl_->logits(tokens); }

}  // namespace sluice::run
