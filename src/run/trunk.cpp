#include "run/trunk.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "cost/analytic.h"
#include "model/table_positions.h"
#include "run/model_source.h"
#include "run/precision.h"
#include "runtime/make_executor.h"
#include "session/run_planning.h"

namespace sluice::run {
namespace {

// As wide as ranks compute: nothing is added to masters that stay as they are.
runtime::Precision frozen_precision(const config::TrainConfig& train) {
  runtime::Precision precision = precision_of(train);
  precision.masters =
      precision.compute == comm::DType::kBFloat16 ? runtime::Masters::kBFloat16 : runtime::Masters::kWide;
  return precision;
}

// While it is at work nothing of the run's model is there but what ranks own.
cost::AnalyticMemory memory_beside(const model::ParameterTable& own, const cost::CostModel& run,
                                   const model::ParameterTable& of_run, bool trains, int world_size) {
  const cost::MemoryModel& memory = run.options().memory;
  int64_t coded = 0;
  for (const model::Bucket& bucket : of_run.buckets) coded += bucket.coded ? bucket.size : 0;
  const int64_t of_trained = memory.owner_bytes(of_run.size(), of_run.trained_size(), coded) / world_size;
  const int64_t own_bytes = trains ? memory.owner_bytes_per_parameter : memory.element_bytes;
  // A rank's own part of this model is taken off the device already, and counted again where it is planned.
  const int64_t of_own = own.size() / world_size * own_bytes;
  return {.device_bytes =
              memory.device_bytes > 0 ? std::max<int64_t>(1, memory.device_bytes - of_trained + of_own) : 0,
          .element_bytes = memory.element_bytes,
          .accumulator_bytes = memory.accumulator_bytes,
          .owner_bytes_per_parameter = own_bytes,
          .logits_chunk_bytes = memory.logits_chunk_bytes,
          .master_bytes = trains ? memory.master_bytes : 0};
}

std::vector<int> degrees_of(const std::vector<strategy::Strategy>& candidates, const model::Shape& shape) {
  std::set<int> degrees;
  for (const strategy::Strategy& candidate : candidates) {
    for (const strategy::Pipeline& pipeline : candidate.pipelines) {
      if (model::tp_fault(shape, pipeline.scheme.tp).empty()) degrees.insert(pipeline.scheme.tp);
    }
  }
  return {degrees.begin(), degrees.end()};
}

bool cuts(const strategy::Strategy& candidate, const model::Shape& shape) {
  return std::ranges::all_of(candidate.pipelines, [&](const strategy::Pipeline& pipeline) {
    return model::cut_fault(shape, pipeline.scheme.tp, pipeline.scheme.pp, pipeline.scheme.ep).empty();
  });
}

// Prices only compare its own layouts: they are assumed.
plan::Planner planner_beside(RunContext& run, const session::OtherModel& model,
                             const model::ParameterTable& table, bool trains) {
  const Planning& planning = run.planning();
  plan::PlannerOptions options;
  options.world_size = run.control().world_size();
  for (const strategy::Strategy& candidate : planning.planner().options().candidates) {
    if (!cuts(candidate, model.shape)) continue;
    options.candidates.push_back(candidate);
    for (strategy::Pipeline& pipeline : options.candidates.back().pipelines) {
      // These name layers and experts of the run's model.
      pipeline.device.low_precision = nullptr;
      pipeline.placement = nullptr;
    }
  }
  if (options.candidates.empty()) {
    throw base::InputError(
        base::text("[config] ", model.key, " names ", model.folder.string(),
                   ", which no strategy of the run can cut: give one with another tp or pp"));
  }
  const std::vector<int> degrees = degrees_of(options.candidates, model.shape);
  const cost::AnalyticMemory memory =
      memory_beside(table, planning.cost(), planning.table(), trains, options.world_size);
  return {options, cost::CostModel(cost::analytic_options(model.shape, cost::Rates{}, memory, degrees,
                                                          planning.cost().options().topology))};
}

}  // namespace

Trunk::Trunk(RunContext& run, const session::OtherModel& model, const Options& options)
    : run_(run), model_(model), table_(model::parameter_table(model.shape)) {
  run.control().together(base::text("opening ", model.folder.string()), [&] { open(options); });
}

void Trunk::open(const Options& options) {
  session::require_tokenizer(model_, run_.start().data());
  planner_ = planner_beside(run_, model_, table_, options.trains);
  table_.program = planner_->cost().program();
  act_.emplace(session::EarlierAct{table_, planner_->cost(), link_plans_});
  require_fit();
  const config::RunConfig& config = run_.config();
  const int64_t context = config::longest_context(config);
  runtime::Engine::Options engine;
  engine.precision = options.trains ? precision_of(config.train) : frozen_precision(config.train);
  if (options.trains) engine.moments = config.optimizer.moments();
  engine.context_length = model::table_positions(table_.shape, context, context);
  engine.device = run_.device().device();
  engine.number_loss = options.number_loss;
  engine.keeps_head_rows = options.leaves_head_rows;
  engine.trains = options.trains;
  engine.host_transport = &run_.peers().transport();
  engine.communicators = run_.engine().communicators();
  engine_ = std::make_unique<runtime::Engine>(
      table_, planner_->options().candidates, run_.device_transport(),
      runtime::make_executor(run_.device().device(), run_.peers().executor_options()), engine);
}

void Trunk::load() {
  run_.control().together(base::text("loading ", model_.folder.string()), [&] {
    open_model(storage::locate(model_.folder.string(), {})).load(engine_->store());
  });
}

void Trunk::require_fit() const {
  const config::RunConfig& config = run_.config();
  // Responses may go on to the end of the context, whatever the documents' lengths.
  const int64_t longest =
      config.rl.rolls_out() ? config::longest_context(config) : run_.start().data().longest_sequence();
  if (planner_->max_len_tokens() >= longest) return;
  throw base::InfeasibleError(base::text("[config] ", model_.key, " names ", model_.folder.string(),
                                         ", of which no strategy of the run ", "holds ", longest,
                                         " tokens beside the trained model, but ", planner_->max_len_tokens(),
                                         ": add one with more tp, pp or fsdp, or give a smaller model"));
}

StepInputs Trunk::inputs() {
  return {.planner = *planner_,
          .table = table_,
          .world_size = run_.control().world_size(),
          .rank = run_.rank(),
          .link_plans = &link_plans_};
}

runtime::RowFigures Trunk::evaluate(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                                    const std::string& what) {
  run_.engine().release();
  runtime::RowFigures rows;
  {
    const auto running = run_.activity().nodes(what);
    engine_->evaluate(graph, tokens, &rows);
  }
  engine_->release();
  return rows;
}

runtime::StepResult Trunk::train(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                                 const runtime::AdamW& optimizer, const std::string& what) {
  run_.engine().release();
  const auto running = run_.activity().nodes(what);
  const runtime::StepResult result = engine_->train(graph, tokens, optimizer);
  engine_->release();
  return result;
}

}  // namespace sluice::run
