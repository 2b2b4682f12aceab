#include "generate/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/interval.h"
#include "layers/cached_lanes.h"
#include "layers/carried_rows.h"
#include "layers/head.h"
#include "layers/make_operation.h"
#include "ops/device.h"

namespace sluice::generate {

ForwardPass::ForwardPass(std::vector<inference::ScheduledTokens> of, const inference::Scheduler& scheduler)
    : scheduled(std::move(of)) {
  for (const inference::ScheduledTokens& scheduled : scheduled) {
    const std::vector<int64_t>& tokens = scheduler.tokens(scheduled.sequence);
    ids.insert(ids.end(), tokens.begin() + scheduled.begin, tokens.begin() + scheduled.end);
    targets.insert(targets.end(), tokens.begin() + scheduled.begin + 1,
                   tokens.begin() + scheduled.begin + 1 + scheduled.prompt_logprob_rows);
  }
}

namespace {

// Experts get rows from other lanes without the index of their adapters.
void require_experts_at_hand(const ModelShard& model) {
  const std::vector<std::string>& targets = model.table.model.lora().targets;
  const auto of_experts = [](const std::string& target) {
    return target.find("experts.") != std::string::npos;
  };
  if (model.context.experts.lanes == 1 || std::ranges::none_of(targets, of_experts)) return;
  throw base::InputError(
      "adapters of experts are served side by side where each rank has all experts: give a "
      "strategy without expert parallelism, or serve the merged models");
}

ModelShard with_rows(ModelShard model, const layers::AdapterMask* rows) {
  if (rows != nullptr) require_experts_at_hand(model);
  model.context.adapter_rows = rows;
  return model;
}

}  // namespace

Decoder::Decoder(ModelShard model, int64_t pages, int64_t most_texts)
    : adapter_rows_(model.adapters > 0 ? std::make_unique<layers::AdapterMask>() : nullptr),
      model_(with_rows(std::move(model), adapter_rows_.get())),
      cache_(model_.context, model_.table.program,
             model_.table.program.blocks_in(model_.run(model_.stages.own)),
             (pages + model_.lanes.count() - 1) / model_.lanes.count() * inference::kKvBlockTokens,
             most_texts, model_.like) {
  if (!model_.table.model.has_vocabulary()) {
    throw base::InputError(
        "the model ends in numbers or embeddings, no vocabulary, so it generates no text: see heads.md for "
        "what "
        "reads "
        "them");
  }
  const int64_t head = model_.table.program.head();
  const base::Interval run = model_.run(model_.stages.own);
  for (int64_t position = run.begin; position < std::min(run.end, head); ++position)
    operations_.push_back(layers::make_operation(model_.context, model_.table, position, model_.weights, {}));
  if (run.end > head) {
    head_ =
        layers::head_parameters({model_.table, head, model_.weights, layers::OperationShards::Of::kWeights,
                                 model_.context.cut(/*layer=*/-1)});
  }
}

int64_t Decoder::kv_block_bytes(const ModelShard& model) {
  return inference::kKvBlockTokens * inference::cache_of(model.sharding(), model.stages.own).token;
}

int64_t Decoder::kv_blocks_in(const ModelShard& model, double bytes, int64_t most_texts) {
  return inference::kv_blocks_in(model.sharding(), bytes, most_texts);
}

void Decoder::send_to_next_stage(std::deque<ForwardPass>& by_stage, std::span<double> figures) const {
  const Stages& stages = model_.stages;
  if (stages.count() == 1) return;
  const auto own = static_cast<size_t>(stages.own);
  const int tp = model_.context.parallel.tp;
  std::vector<comm::Message> messages;
  std::vector<at::Tensor> sent, room;
  if (!stages.last() && !by_stage[own].scheduled.empty()) {
    const layers::Flow& flow = by_stage[own].flow;
    sent = layers::leaving_rows(flow.activation_SH, flow.layout.carried.get(),
                                border_at(model_.run(stages.own).end), tp, layers::Travels::kRows);
    by_stage[own].flow = {};
    for (const at::Tensor& rows : sent)
      messages.push_back({.send = rows.const_data_ptr(),
                          .bytes = static_cast<int64_t>(rows.nbytes()),
                          .peer = stages.members[own + 1]});
  }
  if (own > 0 && !by_stage[own - 1].scheduled.empty()) {
    layers::Flow& flow = by_stage[own - 1].flow;
    flow.layout = layout_of(by_stage[own - 1].scheduled);
    room = layers::room_for_rows(flow.layout.rows / tp, model_.context.model.hidden(), model_.like,
                                 border_at(model_.run(stages.own).begin), tp);
    for (at::Tensor& rows : room)
      messages.push_back({.receive = rows.mutable_data_ptr(),
                          .bytes = static_cast<int64_t>(rows.nbytes()),
                          .peer = stages.members[own - 1]});
  }
  const at::Tensor host = at::from_blob(figures.data(), {std::ssize(figures)}, at::kDouble);
  const at::Tensor moved = host.to(model_.like.device(), /*non_blocking=*/false, /*copy=*/true);
  const auto told_bytes = static_cast<int64_t>(moved.nbytes());
  if (told_bytes > 0 && !stages.last())
    messages.push_back(
        {.receive = moved.mutable_data_ptr(), .bytes = told_bytes, .peer = stages.members.back()});
  for (size_t stage = 0; told_bytes > 0 && stages.last() && stage < own; ++stage)
    messages.push_back({.send = moved.const_data_ptr(), .bytes = told_bytes, .peer = stages.members[stage]});
  if (messages.empty()) return;
  stages.group->exchange(messages)->wait();
  host.copy_(moved);
  if (!room.empty()) take(std::move(room), by_stage[own - 1].flow);
}

model::BorderRows Decoder::border_at(int64_t position) const {
  return model::border_rows(model_.table.program, position, model_.context.parallel.tp);
}

void Decoder::take(std::vector<at::Tensor> arrived, layers::Flow& flow) const {
  const model::BorderRows border = border_at(model_.run(model_.stages.own).begin);
  if (!border.empty()) flow.layout.carried = std::make_shared<layers::CarriedRows>();
  flow.activation_SH = border.empty() ? std::move(arrived.front())
                                      : layers::take_arrived(std::move(arrived), border,
                                                             layers::Travels::kRows, *flow.layout.carried);
}

layers::RowLayout Decoder::layout_of(std::span<const inference::ScheduledTokens> pieces) const {
  const int tp = model_.context.parallel.tp;
  const layers::Reach reach = layers::reach_of(model_.context.model);
  if (model_.lanes.count() > 1) {
    std::vector<layers::KvBlockPiece> paged;
    for (const inference::ScheduledTokens& scheduled : pieces)
      paged.push_back(
          {scheduled.end - scheduled.begin, scheduled.begin, scheduled.kv_blocks, scheduled.slot});
    layers::RowLayout layout = layers::kv_block_row_layout(
        paged, {model_.lanes.members, model_.lanes.own, inference::kKvBlockTokens}, cache_, tp,
        model_.like.device(), reach);
    layout.dispatched = dispatched_rows(layout.cached.lanes);
    return layout;
  }
  std::vector<layers::CachedPiece> cached;
  for (const inference::ScheduledTokens& scheduled : pieces) {
    cached.push_back({.length = scheduled.end - scheduled.begin,
                      .begin = scheduled.begin,
                      .before = inference::rows_of(scheduled.kv_blocks, 0, scheduled.begin),
                      .own = inference::rows_of(scheduled.kv_blocks, scheduled.begin, scheduled.end),
                      .slot = scheduled.slot,
                      .kv_blocks = scheduled.kv_blocks});
  }
  return layers::cached_row_layout(cached, cache_, tp, model_.like.device(), reach,
                                   inference::kKvBlockTokens);
}

// Rows of the lanes that divide experts with this one. A lane's rows are rounded up to a multiple of tp.
layers::DispatchedRows Decoder::dispatched_rows(const layers::CacheOfLanes& lanes) const {
  const int tp = model_.context.parallel.tp, divided = model_.context.experts.lanes;
  layers::DispatchedRows rows{.members = {}, .rows = {}, .keeps = false};
  if (divided == 1) return rows;
  const int first = model_.lanes.own / divided * divided;
  for (int lane = first; lane < first + divided; ++lane) {
    rows.members.push_back(model_.lanes.members[static_cast<size_t>(lane)]);
    rows.rows.push_back((lanes.rows[static_cast<size_t>(lane)].size() + tp - 1) / tp * tp);
  }
  return rows;
}

at::Tensor Decoder::rows_of(const layers::RowLayout& layout, const at::Tensor& x_TH,
                            const std::vector<int64_t>& rows) const {
  if (model_.lanes.count() == 1) return x_TH.index_select(0, ops::to_device(rows, x_TH.device()));
  return layers::rows_of_engine_step(*model_.context.lanes, layout.cached.lanes, x_TH, rows);
}

base::Interval Decoder::own_rows(const ForwardPass& pass) const {
  return model_.lanes.count() > 1 ? pass.flow.layout.cached.lanes.own_rows()
                                  : base::Interval{0, std::ssize(pass.ids)};
}

layers::AdapterMask Decoder::adapter_rows_of(const ForwardPass& pass) const {
  std::vector<int64_t> adapters;
  for (const inference::ScheduledTokens& piece : pass.scheduled)
    adapters.insert(adapters.end(), static_cast<size_t>(piece.end - piece.begin), piece.adapter);
  const base::Interval own = own_rows(pass);
  const at::Tensor own_T = layers::row_values({adapters.begin() + own.begin, adapters.begin() + own.end},
                                              pass.flow.layout, model_.like.device());
  const int64_t rank = model_.table.model.lora().rank / model_.adapters;
  const at::Tensor of_column_K = at::arange(model_.adapters, own_T.options()).repeat_interleave(rank);
  layers::AdapterMask rows{.chosen_TK = own_T.unsqueeze(1).eq(of_column_K).to(model_.like.dtype())};
  const base::Interval shard = model_.context.parallel.shard_rows(own_T.size(0));
  rows.chosen_SK = rows.chosen_TK.narrow(0, shard.begin, shard.size());
  return rows;
}

void Decoder::forward(ForwardPass& pass, const std::function<void()>& between) const {
  layers::Flow& flow = pass.flow;
  const layers::TensorParallel& parallel = model_.context.parallel;
  if (model_.stages.own == 0) {
    flow.layout = layout_of(pass.scheduled);
    const base::Interval own = own_rows(pass);
    flow.id_T = layers::row_values({pass.ids.begin() + own.begin, pass.ids.begin() + own.end}, flow.layout,
                                   model_.like.device());
  }
  const layers::AdapterMask mask = adapter_rows_ ? adapter_rows_of(pass) : layers::AdapterMask();
  for (const auto& operation : operations_) {
    if (adapter_rows_) *adapter_rows_ = mask;  // another pass may have run in between
    operation->forward(flow, layers::Purpose::kEvaluate);
    if (between) between();
  }
  if (!is_last_stage()) return;
  std::vector<int64_t> wanted, scored;
  int64_t row = 0;
  for (const inference::ScheduledTokens& scheduled : pass.scheduled) {
    for (int64_t i = 0; i < scheduled.prompt_logprob_rows; ++i) scored.push_back(row + i);
    row += scheduled.end - scheduled.begin;
    if (scheduled.needs_sampling) wanted.push_back(row - 1);
  }
  if (wanted.empty() && scored.empty()) return;
  const at::Tensor x_TH = parallel.all_gather_rows(flow.activation_SH);
  const auto rows = [&](const std::vector<int64_t>& of) { return rows_of(flow.layout, x_TH, of); };
  if (!wanted.empty()) pass.logits_PV = layers::head_logits(model_.context, head_, rows(wanted));
  if (!scored.empty()) pass.prompt_logprobs = scores_of(rows(scored), pass);
}

// Computes logits of few rows at a time.
std::vector<PromptLogprob> Decoder::scores_of(const at::Tensor& x_RH, const ForwardPass& pass) const {
  std::vector<PromptLogprob> scores;
  const int64_t rows = x_RH.size(0);
  const int64_t chunk = layers::head_chunk_rows(model_.context, head_, sizeof(double));
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const at::Tensor logits_CV = layers::head_logits(model_.context, head_, x_RH.narrow(0, begin, count));
    const at::Tensor log_CV = at::log_softmax(logits_CV.to(at::kDouble), 1);
    const std::span targets(pass.targets);
    const at::Tensor target_C1 =
        ops::to_device(targets.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                       log_CV.device())
            .unsqueeze(1);
    const auto [most_CA, likeliest_CA] = log_CV.topk(pass.alternatives, 1);
    const at::Tensor found_CF =
        at::cat({log_CV.gather(1, target_C1), likeliest_CA.to(at::kDouble), most_CA}, 1).cpu();
    for (int64_t row = 0; row < count; ++row) {
      const double* of_row = found_CF.const_data_ptr<double>() + row * found_CF.size(1);
      PromptLogprob& score = scores.emplace_back();
      score.log_probability = of_row[0];
      for (int64_t i = 1; i <= pass.alternatives; ++i)
        score.alternatives.push_back({static_cast<int64_t>(of_row[i]), of_row[pass.alternatives + i]});
    }
  }
  return scores;
}

}  // namespace sluice::generate
