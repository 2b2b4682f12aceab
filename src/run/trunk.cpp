#include "run/trunk.h"

#include "base/error.h"
#include "base/log.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "checkpoint/vocabulary_rows.h"
#include "graph/memory.h"
#include "model/table_positions.h"
#include "run/load_progress.h"
#include "run/model_source.h"
#include "run/other_tokenizers.h"
#include "run/precision.h"
#include "runtime/make_executor.h"
#include "session/data_notes.h"

namespace sluice::run {
namespace {

// Frozen masters are as wide as ranks compute: no updates are added to them.
runtime::Precision frozen_precision(const config::TrainConfig& train) {
  runtime::Precision precision = precision_of(train);
  precision.masters =
      precision.compute == comm::DType::kBFloat16 ? runtime::Masters::kBFloat16 : runtime::Masters::kWide;
  return precision;
}

}  // namespace

Trunk::Trunk(RunContext& run, const session::OtherModel& model, const Options& options) : run_(run) {
  run.control().together(base::text("opening ", model.folder.string()), [&] {
    require_tokenizer(model, run.config());
    require_tokenizer(model, run.start().data());
    if (model.common_rows > 0) require_common_rows(model);
    planning_.emplace(session::plan_beside(run.planning().planner(), model, run.planning().beside_bytes()));
    open(options);
  });
}

void Trunk::open(const Options& options) {
  act_.emplace(session::earlier_act(*planning_, link_plans_));
  // Responses may reach the end of the context, whatever the lengths of documents.
  session::require_fit(*planning_, run_.config().generates() ? config::longest_context(run_.config())
                                                             : run_.start().data().longest_sequence());
  const config::RunConfig& config = run_.config();
  const int64_t context = config::longest_context(config);
  runtime::Engine::Options engine;
  engine.precision = options.trains ? precision_of(config.train) : frozen_precision(config.train);
  if (options.trains) engine.moments = config.optimizer.moments();
  engine.context_length = model::table_positions(planning_->table.model, context, context);
  engine.device = run_.device().device();
  engine.number_loss = options.number_loss;
  engine.keeps_head_rows = options.leaves_head_rows;
  engine.trains = options.trains;
  engine.host_transport = &run_.peers().transport();
  engine.communicators = run_.engine().communicators();
  engine_ = std::make_unique<runtime::Engine>(
      planning_->table, planning_->planner.options().candidates, run_.device_transport(),
      runtime::make_executor(run_.device().device(), run_.peers().executor_options()), engine);
}

// Checks that no document has a token that only one of the two models has a row for.
void Trunk::require_common_rows(const session::OtherModel& model) const {
  config::RunConfig common = run_.config();
  common.model.resolved = model::with_vocab(*common.model.resolved, model.common_rows);
  session::require_rows(common, run_.start().data());
  if (run_.rank() != 0) return;
  base::log_info(base::text(model.key, " names ", model.folder.string(),
                            ", whose vocabulary is padded otherwise than the trained model's: distributions ",
                            "are taken over the ", model.common_rows, " rows that both have"));
}

void Trunk::load() {
  run_.control().together(base::text("loading ", model().folder.string()), [&] {
    ModelSource source = open_model(storage::locate(model().folder.string(), {}));
    const bool coded = model().value.base().coded();
    if (model().common_rows == 0 && !coded) return source.load(engine_->store(), run_.activity());
    const checkpoint::HuggingFaceModel& files = *source.hugging_face;
    const checkpoint::BucketSource numbers = checkpoint::with_vocabulary(
        files.table(),
        [&](int bucket, base::Interval interval, float* values) { files.read(bucket, interval, values); });
    LoadProgress progress(run_.activity(), engine_->store());
    runtime::load_masters(engine_->store(),
                          progress.counted([&](int bucket, base::Interval interval, float* values) {
                            numbers(planning_->table.buckets[static_cast<size_t>(bucket)], interval, values);
                          }),
                          progress.counted_plain(numbers));
  });
}

StepInputs Trunk::inputs() {
  return {.planner = planning_->planner,
          .table = planning_->table,
          .world_size = run_.control().world_size(),
          .rank = run_.rank(),
          .link_plans = &link_plans_,
          .beside_bytes = planning_->beside_bytes};
}

runtime::RowFigures Trunk::evaluate(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                                    const std::string& what) {
  const int64_t begin_ns = base::now_ns();
  run_.engine().release();
  runtime::RowFigures rows;
  runtime::StepResult result;
  {
    const auto running = run_.activity().nodes(what);
    result = engine_->evaluate(graph, tokens, &rows);
  }
  engine_->release();
  note(graph, result, base::now_ns() - begin_ns);
  return rows;
}

runtime::StepResult Trunk::train(const graph::StepGraph& graph, const runtime::StepTokens& tokens,
                                 const runtime::AdamW& optimizer, const std::string& what) {
  const int64_t begin_ns = base::now_ns();
  run_.engine().release();
  const auto running = run_.activity().nodes(what);
  const runtime::StepResult result = engine_->train(graph, tokens, optimizer);
  engine_->release();
  note(graph, result, base::now_ns() - begin_ns);
  return result;
}

void Trunk::note(const graph::StepGraph& graph, const runtime::StepResult& result, int64_t time_ns) {
  timing_ = result.timing;
  newest_ = {.name = "",
             .time_ns = time_ns,
             .predicted_ns = graph.makespan_ns,
             .peak_bytes = result.peak_bytes,
             .predicted_peak_bytes = planning_->beside_bytes};
  newest_.predicted_peak_bytes +=
      graph::predicted_memory(graph, planning_->planner.cost())[static_cast<size_t>(run_.rank())].peak_bytes;
}

}  // namespace sluice::run
