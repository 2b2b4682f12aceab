#include "runtime/step_runner.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "cost/fsdp_cost.h"
#include "layers/expanded_base.h"
#include "layers/make_operation.h"
#include "model/border_rows.h"
#include "runtime/lane_part_spans.h"
#include "runtime/muon.h"
#include "runtime/read_numbers.h"
#include "runtime/stream_use.h"

namespace sluice::runtime {

using graph::Node;
using graph::NodeKind;

StepRunner::StepRunner(const graph::StepGraph& graph, int rank, const StepTokens& tokens,
                       const StepResources& resources, const AdamW* optimizer)
    : graph_(graph),
      rank_(rank),
      resources_(resources),
      optimizer_(optimizer),
      place_(strategy::places(graph.plan.strategy(), graph.world_size)[static_cast<size_t>(rank)]) {
  if (resources_.lanes != nullptr) exchange_bytes_before_ = resources_.lanes->sent_bytes();
  resources_.store.open_step(graph.links->layout.holdings(rank), optimizer != nullptr
                                                                     ? ParameterStore::Gradients::kMade
                                                                     : ParameterStore::Gradients::kNone);
  pull_memories_ = pull_memories(resources_.store);
  push_memories_ = push_memories(resources_.store);
  if (resources_.pull.holders == StepPull::Holders::kHaveTheStepBefore)
    difference_memories_ = difference_memories(resources_.store, *resources_.pull.differences);
  if (resources_.earlier != nullptr) keep_earlier();
  const bool at_work = place_.pipeline >= 0 && !graph.links->layout.holdings(rank).empty();
  if (at_work) open_stage(tokens);
}

void StepRunner::open_stage(const StepTokens& tokens) {
  plan_ = &graph_.plan.pipelines[static_cast<size_t>(place_.pipeline)];
  pipeline_ = &plan_->pipeline;
  const strategy::Scheme& scheme = pipeline_->scheme;
  const model::ParameterTable& table = resources_.store.table();
  resources_.context.parallel = {
      resources_.communicators.tensor_parallel(pipeline_->tp_group(place_.stage, place_.lane)), scheme.tp,
      place_.t};
  resources_.context.lanes = resources_.lanes;
  resources_.context.load = place_.t == 0 ? &load_ : nullptr;  // TP ranks have the same rows
  load_.counts_coactivations = resources_.counts_coactivations;
  resources_.context.experts = {scheme.ep, place_.lane - scheme.first_of_ep_group(place_.lane)};
  if (pipeline_->placement) resources_.context.experts.expert_slots = pipeline_->placement->layers;
  if (const auto& narrow = pipeline_->device.low_precision)
    resources_.context.low_precision = {.format = narrow->format, .layers = narrow->layers};
  resources_.context.low_precision.errors = resources_.errors;
  run_ = graph_.program.of_stage(scheme.tp, scheme.pp, place_.stage);
  if (scheme.fsdp > 1) open_gathered();
  for (const int bucket : graph_.program.buckets_of(run_))
    expands_ = expands_ || table.buckets[static_cast<size_t>(bucket)].coded;
  for (int64_t position = run_.begin; position < run_.end && !gathered_ && !expands_; ++position) {
    operations_.push_back(layers::make_operation(
        resources_.context, table, position, shards_of(&ComputeShard::parameters),
        optimizer_ != nullptr ? shards_of(&ComputeShard::gradients) : layers::FlatShards{}));
  }
  open_micro_batches(tokens);
}

void StepRunner::open_gathered() {
  const strategy::Scheme& scheme = pipeline_->scheme;
  comm::Communicator& group =
      resources_.communicators.fsdp(pipeline_->fsdp_group(place_.stage, place_.lane, place_.t));
  FsdpChannel& channel = resources_.fsdp.try_emplace(&group, group).first->second;
  const int run_lanes = strategy::fsdp_runs(*pipeline_, place_.stage, graph_.links->topology).lanes;
  constexpr int kSums = 0xff;  // exchange number, none of a round's
  gathered_.emplace(resources_.store, channel, *pipeline_, place_.t, activations_,
                    GatheredParameters::Options{run_lanes, resources_.codecs, chance(kSums)});
  const int first = scheme.first_of_fsdp_group(place_.lane);
  for (const strategy::Pass& pass : graph_.passes[static_cast<size_t>(place_.pipeline)]) {
    std::vector<char>& of_pass = contributes_.emplace_back();
    for (int lane = first; lane < first + scheme.fsdp; ++lane)
      of_pass.push_back(pass.covers(lane) && strategy::micro_batch_on(*plan_, pass, lane) >= 0 ? 1 : 0);
  }
}

void StepRunner::open_micro_batches(const StepTokens& tokens) {
  const c10::Device device = resources_.store.options().device;
  const model::Program& program = graph_.program;
  size_t next = 0;  // place in `tokens`
  if (resources_.rows != nullptr) {
    resources_.rows->end.resize(tokens.size());
    resources_.rows->begin_gradient.resize(tokens.size());
  }
  const std::vector<strategy::Pass>& passes = graph_.passes[static_cast<size_t>(place_.pipeline)];
  for (size_t u = 0; u < passes.size(); ++u) {
    if (pipeline_->scheme.ep > 1) travelling_.push_back(travelling_rows(passes[u]));
    const int index =
        passes[u].covers(place_.lane) ? strategy::micro_batch_on(*plan_, passes[u], place_.lane) : -1;
    if (index < 0) continue;
    const strategy::PipelineMicroBatch& micro_batch = plan_->micro_batches[static_cast<size_t>(index)];
    SLUICE_ASSERT(next < tokens.size(), base::text("tokens of only ", next, " micro-batches"));
    LanePart& batch = lane_parts_[static_cast<int>(u)];
    batch.place = next++;
    const LanePartTokens& own = tokens[batch.place];
    batch.memory = micro_batch.memory;
    batch.flow.layout = layout_of(micro_batch);
    if (!travelling_.empty()) batch.flow.layout.dispatched = travelling_.back();
    if (run_.begin == program.embedding()) {
      batch.flow.id_T = layers::row_values(own.tokens, batch.flow.layout, device);
    } else if (run_.begin == program.run().begin) {
      take_rows(batch);
    }
    if (run_.end > program.head()) {
      std::vector<int64_t> target_of_row = own.targets;
      target_of_row.resize(static_cast<size_t>(batch.flow.layout.rows), -1);
      const bool takes_given = optimizer_ != nullptr || !resources_.context.model.has_vocabulary();
      batch.flow.targets = layers::targets(target_of_row, resources_.context.parallel, device,
                                           takes_given ? own.given : std::vector<double>());
      if (resources_.teachers != nullptr) {
        for (const std::vector<layers::HeadRows>& rows : *resources_.teachers)
          batch.flow.targets.teachers.push_back(rows.at(batch.place));
      }
      if (resources_.context.model.has_mtp() && optimizer_ != nullptr) batch.flow.mtp = mtp_rows(own, batch);
    }
    batch.saved.resize(static_cast<size_t>(run_.size()));
    batch.deferred.resize(batch.saved.size());
    batch.early_gradients.resize(batch.saved.size());
    batch.away.resize(batch.saved.size());
  }
  SLUICE_ASSERT(next == tokens.size(), base::text("tokens of ", tokens.size(), " micro-batches for ", next));
}

layers::MtpRows StepRunner::mtp_rows(const LanePartTokens& own, const LanePart& batch) const {
  SLUICE_ASSERT(
      own.mtp_targets.size() == own.targets.size() && own.next_tokens.size() == own.targets.size(),
      base::text("an MTP layer's tokens for ", own.mtp_targets.size(), " of ", own.targets.size(), " rows"));
  const c10::Device device = resources_.store.options().device;
  std::vector<int64_t> target_of_row = own.mtp_targets;
  target_of_row.resize(static_cast<size_t>(batch.flow.layout.rows), -1);
  return {layers::row_values(own.next_tokens, batch.flow.layout, device),
          layers::targets(target_of_row, resources_.context.parallel, device)};
}

// Rows of a micro-batch are its tokens, rounded up to a multiple of tp.
layers::DispatchedRows StepRunner::travelling_rows(const strategy::Pass& pass) const {
  const strategy::Scheme& scheme = pipeline_->scheme;
  const int first = scheme.first_of_ep_group(place_.lane);
  layers::DispatchedRows rows{.members = {}, .rows = {}, .keeps = pass.memory.keeps_dispatched()};
  for (int lane = first; lane < first + scheme.ep; ++lane) {
    const int64_t tokens = strategy::tokens_on(*plan_, pass, lane);
    rows.members.push_back(pipeline_->rank_of(place_.stage, lane, place_.t));
    rows.rows.push_back((tokens + scheme.tp - 1) / scheme.tp * scheme.tp);
  }
  return rows;
}

layers::RowLayout StepRunner::layout_of(const strategy::PipelineMicroBatch& micro_batch) const {
  const c10::Device device = resources_.store.options().device;
  const int tp = pipeline_->scheme.tp;
  const layers::Reach reach = layers::reach_of(resources_.context.model);
  if (micro_batch.lanes == 1)
    return layers::row_layout(lane_part_spans(micro_batch, place_.lane, graph_.plan), tp, device, reach);
  layers::LanePartSpans spans{.lane = place_.lane - micro_batch.first_lane,
                              .head_lanes = micro_batch.head_lanes(),
                              .exchange = micro_batch.exchange};
  std::vector<int> nodes;
  for (int lane = micro_batch.first_lane; lane < micro_batch.end_lane(); ++lane) {
    spans.members.push_back(pipeline_->rank_of(place_.stage, lane, place_.t));
    spans.lanes.push_back(lane_part_spans(micro_batch, lane, graph_.plan));
    nodes.push_back(graph_.links->topology.node_of(spans.members.back()));
  }
  spans.in_node = strategy::neighbours_in_node(nodes);
  return layers::cp_row_layout(spans, tp, device, reach);
}

uint64_t StepRunner::chance(int exchange) const {
  const uint64_t update = optimizer_ == nullptr ? 0 : static_cast<uint64_t>(optimizer_->update);
  return (update * 0x9e3779b97f4a7c15U) ^ (static_cast<uint64_t>(exchange) << 40) ^
         (static_cast<uint64_t>(rank_) << 48);
}

void StepRunner::pull(int round, bool in_node) {
  using Holders = StepPull::Holders;
  const comm::DType compute = resources_.store.options().precision.compute;
  const strategy::PullCodec codec = resources_.codecs.pull;
  LinkRunner& runner = in_node ? resources_.link_intra : resources_.link_inter;
  const auto at = static_cast<size_t>(round);
  if (resources_.pull.holders == Holders::kHaveAll) return;
  if (resources_.pull.holders == Holders::kHaveNothing) {
    for (const link::RoundWire& wire : resources_.wires.pull[at])
      runner.run_coded(in_node ? wire.intra : wire.inter, pull_memories_, compute,
                       whole_codec(codec, comm::size_of(compute)), /*seed=*/0);
    return;
  }
  for (const link::RoundDifference& wire : resources_.wires.differences[at])
    runner.run(in_node ? wire.intra : wire.inter, *difference_memories_, compute, codec);
  if (in_node) add_pulled(round);
}

void StepRunner::push(int round, bool in_node) {
  const comm::DType master = resources_.store.options().precision.master();
  const strategy::LevelCodecs& codecs = resources_.codecs.push;
  LinkRunner& runner = in_node ? resources_.link_intra : resources_.link_inter;
  uint64_t seed = chance(2 * round + (in_node ? 0 : 1));
  for (const link::RoundWire& wire : resources_.wires.push[static_cast<size_t>(round)]) {
    runner.run_coded(in_node ? wire.intra : wire.inter, push_memories_, master,
                     in_node ? codecs.in_node : codecs.between_nodes, seed);
    seed += uint64_t{1} << 32;  // behind this piece's elements
  }
}

void StepRunner::add_pulled(int round) {
  for (const int bucket : graph_.links->rounds.buckets[static_cast<size_t>(round)]) {
    const CodedNumbers& came = (*resources_.pull.differences)[static_cast<size_t>(bucket)];
    if (!came.codes.defined()) continue;
    add_differences(came, graph_.links->layout.shard(bucket, rank_),
                    resources_.store.shard(bucket).parameters);
  }
}

void StepRunner::run(const Node& node) {
  // Backwards are written out here, so libtorch need not watch views and versions for its own: each of its
  // calls would pass two layers more. Many a node is a few rows, for which that is a good part of the time.
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  switch (node.kind) {
    case NodeKind::kPullInter: return pull(node.round(), /*in_node=*/false);
    case NodeKind::kPullIntra: return pull(node.round(), /*in_node=*/true);
    case NodeKind::kPushIntra: return push(node.round(), /*in_node=*/true);
    case NodeKind::kPushInter: return push(node.round(), /*in_node=*/false);
    case NodeKind::kForward: return forward(node);
    case NodeKind::kBackward:
    case NodeKind::kBackwardInput: return backward(node);
    case NodeKind::kBackwardWeight: return backward_weight(node);
    case NodeKind::kSendActivation: return send_activation(node);
    case NodeKind::kSendGradient: return send_gradient(node);
    case NodeKind::kOffload: return offload(node);
    case NodeKind::kFetch: return fetch(node);
    case NodeKind::kReduceScalars: return reduce_scalars();
    case NodeKind::kUpdate:
      SLUICE_ASSERT(optimizer_ != nullptr, "an evaluation graph has an update");
      if (!resources_.updates) return;
      // Gradients that are not finite would spoil the masters, so these stay unchanged on all ranks.
      if (!std::isfinite(scalars_.loss_sum) || !std::isfinite(scalars_.gradient_squares)) return;
      if (optimizer_->muon) {
        update_matrices(resources_.store, *optimizer_, std::max<int64_t>(1, scalars_.targets),
                        gradient_norm(), resources_.communicators.link_inter());
      }
      return update(resources_.store, *optimizer_, std::max<int64_t>(1, scalars_.targets), gradient_norm());
  }
}

// Some gradients are computed with input gradients (learns_with_input) and wait for the matrices' gradients
// before they are summed.
GatheredParameters::Operation StepRunner::shared_operation(cost::CellKind kind, int64_t position) const {
  const model::Program& program = resources_.store.table().program;
  const bool trains = optimizer_ != nullptr;
  const bool sums = trains && cost::sums_gradients(program, kind, position);
  return {.position = position,
          .buckets = program.at(position).buckets,
          .gathers = cost::gathers(program, kind, position),
          .keeps = trains && kind == cost::CellKind::kForward && cost::stays_at_hand(program, position),
          .makes_gradients = sums || kind == cost::CellKind::kBackwardInput,
          .sums_gradients = sums};
}

layers::FlatShards StepRunner::shards_of(at::Tensor ComputeShard::*member) const {
  return [this, member](int bucket) { return resources_.store.shard(bucket).*member; };
}

// Adapters' weight gradients do not need the adapted matrices.
StepRunner::Expanded StepRunner::expand(cost::CellKind kind, int64_t position,
                                        const layers::FlatShards& weights) {
  const model::ParameterTable& table = resources_.store.table();
  Expanded result;
  std::map<int, at::Tensor> coded;
  for (const int index : table.program.at(position).buckets) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
    if (!bucket.coded) continue;
    at::Tensor& numbers = coded[index];
    if (kind == cost::CellKind::kBackwardWeight) continue;
    numbers = layers::expanded(bucket, resources_.context.cut(bucket.layer), weights(index));
    result.bytes += static_cast<int64_t>(numbers.nbytes());
  }
  activations_.take(result.bytes);
  result.weights = [weights, coded = std::move(coded)](int bucket) {
    const auto found = coded.find(bucket);
    return found == coded.end() ? weights(bucket) : found->second;
  };
  return result;
}

template <typename Compute>
void StepRunner::operate(const Node& node, int64_t position, const Compute& compute) {
  LanePart* batch = micro_batch(node);
  const cost::CellKind kind = node.cell_kind();
  if (!gathered_) {
    if (!expands_) return compute(*batch, *operations_[stage_index(position)]);
    const Expanded expanded = expand(kind, position, shards_of(&ComputeShard::parameters));
    const std::unique_ptr<layers::Operation> operation = layers::make_operation(
        resources_.context, resources_.store.table(), position, expanded.weights,
        optimizer_ != nullptr ? shards_of(&ComputeShard::gradients) : layers::FlatShards{});
    compute(*batch, *operation);
    return activations_.give_back(expanded.bytes);
  }
  const base::Interval whole = graph::at_work(graph_.program, kind, run_);
  const int64_t next = kind == cost::CellKind::kForward ? position + 1 : position - 1;
  const bool last = next < whole.begin || next >= whole.end;
  const GatheredParameters::Operation own = shared_operation(kind, position);
  const GatheredParameters::Operation behind =
      last ? GatheredParameters::Operation{} : shared_operation(kind, next);
  gathered_->begin(own, last ? nullptr : &behind, contributes_[static_cast<size_t>(node.cell().pass)],
                   node.id);
  const auto pass = static_cast<size_t>(node.cell().pass);
  // The head's experts are an MTP layer's, which evaluations do not run.
  const bool runs_experts = optimizer_ != nullptr || position != graph_.program.head();
  const bool helps = batch == nullptr && runs_experts && !travelling_.empty() && travelling_[pass].any();
  if (batch != nullptr || helps) {
    layers::FlatShards weights, gradients;
    Expanded expanded;
    if (gathered_->holds(own)) {
      expanded = expand(kind, position, [this](int bucket) { return gathered_->parameters(bucket); });
      weights = expanded.weights;
    }
    if (own.makes_gradients) gradients = [this](int bucket) { return gathered_->gradients(bucket); };
    const std::unique_ptr<layers::Operation> operation =
        layers::make_operation(resources_.context, resources_.store.table(), position, weights, gradients);
    if (helps) {
      operation->help(travelling_[pass], kind == cost::CellKind::kForward ? layers::Direction::kForward
                                                                          : layers::Direction::kBackward);
    } else {
      if (kind == cost::CellKind::kBackwardWeight) add_early_gradients(*batch, position);
      compute(*batch, *operation);
      if (own.makes_gradients && !own.sums_gradients) keep_early_gradients(*batch, position);
    }
    activations_.give_back(expanded.bytes);
  }
  gathered_->end();
}

// Calls visit(gradient) for each early gradient within the gathered gradients of an operation.
namespace {

// Whether a gradient is computed with the layer's input gradient, not with the matrices': true for vectors
// and for adapters of single experts.
bool learns_with_input(const model::Parameter& parameter) {
  return parameter.one_dimensional() || (parameter.factor != model::Factor::kNone && parameter.experts > 0);
}

}  // namespace

template <typename Visit>
void StepRunner::for_each_early_gradient(int64_t position, Visit visit) const {
  const model::ParameterTable& table = resources_.store.table();
  const base::Interval own = table.program.at(position).own;
  for (int64_t index = own.begin; index < own.end; ++index) {
    const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
    if (!bucket.trained) continue;
    const auto locals = model::local_parameters(bucket, resources_.context.cut(bucket.layer));
    for (size_t i = 0; i < locals.size(); ++i) {
      if (!learns_with_input(bucket.parameters[i])) continue;
      const int64_t numbers = locals[i].rows * locals[i].columns;
      visit(gathered_->gradients(bucket.index).narrow(0, locals[i].offset, numbers));
    }
  }
}

void StepRunner::keep_early_gradients(LanePart& batch, int64_t position) {
  for_each_early_gradient(position, [&](const at::Tensor& gradient) {
    batch.early_gradients[stage_index(position)].push_back(gradient.clone());
  });
}

void StepRunner::add_early_gradients(LanePart& batch, int64_t position) {
  std::vector<at::Tensor>& kept = batch.early_gradients[stage_index(position)];
  size_t next = 0;
  for_each_early_gradient(position, [&](at::Tensor gradient) { gradient.add_(kept[next++]); });
  kept.clear();
}

namespace {

void use_here(const layers::Flow& flow, const at::Tensor& stream_SH) {
  use_on_current_stream(stream_SH);
  if (flow.layout.carried == nullptr) return;
  for (const at::Tensor& rows : flow.layout.carried->rows()) use_on_current_stream(rows);
}

}  // namespace

void StepRunner::forward(const Node& node) {
  if (LanePart* batch = micro_batch(node)) use_here(batch->flow, batch->flow.activation_SH);
  const base::Interval run = node.cell().run;
  const model::Program& program = graph_.program;
  const int64_t first_trained = program.first_trained();
  for (int64_t position = run.begin; position < run.end; ++position) {
    operate(node, position, [&](LanePart& batch, const layers::Operation& operation) {
      const int64_t flowing = flowing_bytes(batch);
      const bool comes_back = optimizer_ != nullptr && position >= first_trained;
      const auto purpose = comes_back ? layers::Purpose::kTrain : layers::Purpose::kEvaluate;
      layers::StatePtr saved = operation.forward(batch.flow, purpose);
      drop_unused_gradient(batch, position);
      if (position == run_.end - 1) drop_carried(batch);
      activations_.take(flowing_bytes(batch) - flowing);
      if (position == run_.end - 1 && run_.end > program.head()) count_loss(batch);
      if (position + 1 == program.run().end && position < program.head()) leave_rows(batch);
      if (saved == nullptr) return;
      const int64_t saved_bytes = saved->bytes();
      activations_.take(saved_bytes);
      if (batch.memory.recomputes(position - program.blocks().begin)) {
        operation.drop_recomputable(*saved);
        activations_.give_back(saved_bytes - saved->bytes());
      }
      batch.saved[stage_index(position)] = std::move(saved);
    });
  }
}

// Operations below the first that trains do not need the gradient of its input.
void StepRunner::drop_unused_gradient(LanePart& batch, int64_t position) {
  if (position == graph_.program.first_trained()) batch.flow.gradient_SH.reset();
}

// Takes the rows that the trunk in front made.
void StepRunner::take_rows(LanePart& batch) {
  batch.flow.activation_SH = std::move(resources_.rows->begin.at(batch.place));
  activations_.take(flowing_bytes(batch));
}

// Leaves rows for the trunk behind. In training that trunk has already made their gradients.
void StepRunner::leave_rows(LanePart& batch) {
  const int64_t flowing = flowing_bytes(batch);
  at::Tensor rows_SH = std::exchange(batch.flow.activation_SH, {});
  if (optimizer_ == nullptr) {
    resources_.rows->end[batch.place] = std::move(rows_SH);
  } else {
    batch.flow.gradient_SH = std::move(resources_.rows->end_gradient.at(batch.place));
  }
  activations_.take(flowing_bytes(batch) - flowing);
}

void StepRunner::leave_gradient(LanePart& batch) {
  activations_.give_back(flowing_bytes(batch));
  resources_.rows->begin_gradient[batch.place] = std::exchange(batch.flow.gradient_SH, {});
}

// Drops rows carried for later layers if the stage neither runs a backward nor sends them on.
void StepRunner::drop_carried(LanePart& batch) {
  const model::Program& program = graph_.program;
  const bool comes_back = optimizer_ != nullptr && !program.walked_back(run_).empty();
  if (!comes_back && run_.end > program.head()) batch.flow.layout.carried.reset();
}

// All micro-batches' rows share one copy of the matrix, which outlives the shard.
void StepRunner::keep_head_rows(LanePart& batch) {
  layers::HeadRows rows = std::exchange(batch.flow.head_rows, {});
  rows.output_VH = own_head_rows_.empty() ? rows.output_VH.clone() : kept_output_VH_;
  if (rows.bias_V.defined()) rows.bias_V = rows.bias_V.clone();
  kept_output_VH_ = rows.output_VH;
  own_head_rows_.resize(std::max(own_head_rows_.size(), batch.place + 1));
  own_head_rows_[batch.place] = std::move(rows);
}

// Every TP rank finds the same loss; the first one counts it.
void StepRunner::count_loss(LanePart& batch) {
  if (batch.flow.head_rows.row_MH.defined()) keep_head_rows(batch);
  at::Tensor sums = std::move(batch.flow.sums);
  at::Tensor loss_R = std::move(batch.flow.loss_R);
  at::Tensor numbers_RK = std::move(batch.flow.numbers_RK);
  if (place_.t != 0) return;
  if (optimizer_ != nullptr) {
    own_losses_.push_back(std::move(sums));
  } else {
    own_losses_.resize(std::max(own_losses_.size(), batch.place + 1));
    own_losses_[batch.place] = std::move(loss_R);
    own_numbers_.resize(own_losses_.size());
    own_numbers_[batch.place] = std::move(numbers_RK);
  }
  own_targets_ += batch.flow.targets.place_R.numel();
}

void StepRunner::backward(const Node& node) {
  if (LanePart* batch = micro_batch(node)) use_here(batch->flow, batch->flow.gradient_SH);
  const base::Interval run = node.cell().run;
  for (int64_t position = run.end - 1; position >= run.begin; --position) {
    operate(node, position, [&](LanePart& batch, const layers::Operation& operation) {
      backward_operation(node, position, batch, operation);
    });
  }
}

// Computes input gradients and, in a fused backward, weight gradients too.
void StepRunner::backward_operation(const Node& node, int64_t position, LanePart& batch,
                                    const layers::Operation& operation) {
  const size_t i = stage_index(position);
  layers::StatePtr saved = std::move(batch.saved[i]);
  int64_t given_back = flowing_bytes(batch);
  if (saved != nullptr) {
    for (const auto& [tensor, dimension] : saved->rows()) use_on_current_stream(tensor);
    const int64_t recomputed = saved->recomputed_bytes();
    activations_.take(recomputed);
    given_back += saved->bytes() + recomputed;
  }
  if (node.kind == NodeKind::kBackward) {
    operation.backward(batch.flow, std::move(saved));
  } else {
    batch.deferred[i] = operation.backward_input(batch.flow, std::move(saved));
  }
  drop_unused_gradient(batch, position);
  if (position == graph_.program.first_trained()) batch.flow.layout.carried.reset();
  if (position == run_.begin && batch.flow.layout.carried) batch.flow.layout.carried->keep_gradients_alone();
  activations_.give_back(given_back - flowing_bytes(batch));
  if (batch.deferred[i] != nullptr) activations_.take(batch.deferred[i]->bytes());
  const model::Program& program = graph_.program;
  if (position == program.run().begin && position > program.embedding()) leave_gradient(batch);
}

void StepRunner::backward_weight(const Node& node) {
  const base::Interval run = node.cell().run;
  for (int64_t position = run.end - 1; position >= run.begin; --position) {
    operate(node, position, [&](LanePart& batch, const layers::Operation& operation) {
      const size_t i = stage_index(position);
      activations_.give_back(batch.deferred[i]->bytes());
      operation.backward_weight(std::move(batch.deferred[i]));
    });
  }
}

// Sends this rank's rows and the rows carried beside them, or receives them into new tensors. Rows are the TP
// shard of the micro-batch.
void StepRunner::pass(comm::Communicator& communicator, const Border& border, LanePart& batch,
                      at::Tensor layers::Flow::*stream_SH) {
  const ParameterStore::Options& options = resources_.store.options();
  const model::Program& program = resources_.store.table().program;
  const int tp = pipeline_->scheme.tp;
  const model::BorderRows carried = model::border_rows(program, border.position, tp);
  std::shared_ptr<layers::CarriedRows>& own = batch.flow.layout.carried;
  at::Tensor& rows = batch.flow.*stream_SH;
  const int64_t before = flowing_bytes(batch);
  std::vector<comm::Message> messages;
  if (border.sends) {
    std::vector<at::Tensor> leaving = layers::leaving_rows(rows, own.get(), carried, tp, border.travels);
    for (const at::Tensor& sent : leaving) {
      use_on_current_stream(sent);
      messages.push_back(
          {.send = sent.const_data_ptr(), .bytes = static_cast<int64_t>(sent.nbytes()), .peer = border.peer});
    }
    communicator.exchange(messages)->wait();
    rows = at::Tensor();
    const bool comes_back = optimizer_ != nullptr && !program.walked_back(run_).empty();
    if (border.travels == layers::Travels::kGradients || !comes_back) own.reset();
    return activations_.give_back(before - flowing_bytes(batch));
  }
  const int64_t shard_rows = batch.flow.layout.rows / tp, hidden = resources_.context.model.hidden();
  const auto type = at::TensorOptions().dtype(scalar_type(options.precision.compute)).device(options.device);
  std::vector<at::Tensor> room = layers::room_for_rows(shard_rows, hidden, type, carried, tp);
  for (at::Tensor& received : room) {
    messages.push_back({.receive = received.mutable_data_ptr(),
                        .bytes = static_cast<int64_t>(received.nbytes()),
                        .peer = border.peer});
  }
  communicator.exchange(messages)->wait();
  if (!carried.empty() && own == nullptr) own = std::make_shared<layers::CarriedRows>();
  rows = carried.empty() ? std::move(room.front())
                         : layers::take_arrived(std::move(room), carried, border.travels, *own);
  activations_.take(flowing_bytes(batch) - before);
}

void StepRunner::send_activation(const Node& node) {
  LanePart* batch = micro_batch(node);
  if (batch == nullptr) return;
  const int below = node.transfer().stage;
  pass(resources_.communicators.activation(), border_above(below, /*sender=*/below, layers::Travels::kRows),
       *batch, &layers::Flow::activation_SH);
}

void StepRunner::send_gradient(const Node& node) {
  LanePart* batch = micro_batch(node);
  if (batch == nullptr) return;
  const int below = node.transfer().stage;
  pass(resources_.communicators.gradient(),
       border_above(below, /*sender=*/below + 1, layers::Travels::kGradients), *batch,
       &layers::Flow::gradient_SH);
}

StepRunner::Border StepRunner::border_above(int below, int sender, layers::Travels travels) const {
  const int other = place_.stage == below ? below + 1 : below;
  return {.position = place_.stage == below ? run_.end : run_.begin,
          .sends = place_.stage == sender,
          .peer = pipeline_->rank_of(other, place_.lane, place_.t),
          .travels = travels};
}

void StepRunner::offload(const Node& node) {
  LanePart* batch = micro_batch(node);
  if (batch == nullptr) return;
  const size_t i = stage_index(node.copy().block);
  batch->away[i].offload(*batch->saved[i], batch->memory.offload_permille, {activations_, host_});
}

void StepRunner::fetch(const Node& node) {
  LanePart* batch = micro_batch(node);
  if (batch == nullptr) return;
  const size_t i = stage_index(node.copy().block);
  batch->away[i].fetch(*batch->saved[i], {activations_, host_});
}

// Whether this act makes gradients of the bucket.
bool StepRunner::pushes(const model::Bucket& bucket) const {
  return bucket.trained && graph_.links->round_of_bucket[static_cast<size_t>(bucket.index)] >= 0;
}

// Saves the owners' sums that this act's pushes overwrite. Trunks without common buckets overwrite none.
void StepRunner::keep_earlier() {
  EarlierActs& earlier = *resources_.earlier;
  const std::vector<model::Bucket>& buckets = resources_.store.table().buckets;
  earlier.summed.resize(buckets.size());
  earlier.gradients.resize(buckets.size());
  for (const model::Bucket& bucket : buckets) {
    const auto index = static_cast<size_t>(bucket.index);
    if (pushes(bucket) && earlier.summed[index] != 0)
      earlier.gradients[index] = resources_.store.owner(bucket.index).gradient.clone();
  }
}

// Adds earlier acts' sums to this act's, which the owners hold, and keeps the total for the next act.
void StepRunner::join_earlier(std::vector<double>& own) {
  EarlierActs& earlier = *resources_.earlier;
  earlier.sums.resize(own.size());
  for (size_t i = 0; i < own.size(); ++i) own[i] += earlier.sums[i];
  earlier.sums = own;
  for (const model::Bucket& bucket : resources_.store.table().buckets) {
    const auto index = static_cast<size_t>(bucket.index);
    if (pushes(bucket)) {
      const at::Tensor before = std::exchange(earlier.gradients[index], {});
      if (before.defined()) resources_.store.owner(bucket.index).gradient.add_(before);
      earlier.summed[index] = 1;
    }
    SLUICE_ASSERT(!resources_.updates || !bucket.trained || earlier.summed[index] != 0,
                  base::text("no act of the step has made gradients of bucket ", bucket.index));
  }
}

void StepRunner::reduce_scalars() {
  const bool trains = optimizer_ != nullptr;
  std::vector<double> own{0, static_cast<double>(own_targets_), 0};
  if (trains) own.resize(own.size() + static_cast<size_t>(resources_.context.notes()));
  std::vector<at::Tensor> sums = own_losses_;
  if (!trains) {
    for (at::Tensor& sum : sums) sum = sum.sum(0, /*keepdim=*/true);
  }
  const size_t width = own.size() - 2;
  const std::vector<double> read = read_numbers(std::move(sums));
  for (size_t i = 0; i < read.size(); ++i) own[2 + i % width] += read[i];
  if (resources_.earlier != nullptr) join_earlier(own);
  if (!resources_.updates) return;
  if (trains) own[0] = squared_gradient_norm(resources_.store);
  std::vector<double> all(own.size() * static_cast<size_t>(graph_.world_size));
  resources_.communicators.control()
      .all_gather(own.data(), all.data(), static_cast<int64_t>(own.size() * sizeof(double)))
      ->wait();
  scalars_.notes.assign(own.size() - 3, 0.0);
  for (size_t i = 0; i < all.size(); i += own.size()) {
    scalars_.gradient_squares += all[i];
    scalars_.targets += static_cast<int64_t>(all[i + 1]);
    scalars_.loss_sum += all[i + 2];
    for (size_t k = 0; k < scalars_.notes.size(); ++k) scalars_.notes[k] += all[i + 3 + k];
  }
}

std::vector<std::vector<double>> StepRunner::row_losses() const {
  SLUICE_ASSERT(optimizer_ == nullptr, "losses by row of a training step");
  std::vector<std::vector<double>> losses;
  for (const at::Tensor& loss_R : own_losses_) losses.push_back(read_numbers({loss_R}));
  return losses;
}

std::vector<std::vector<double>> StepRunner::row_numbers() const {
  std::vector<std::vector<double>> numbers;
  for (const at::Tensor& numbers_RK : own_numbers_)
    numbers.push_back(numbers_RK.defined() ? read_numbers({numbers_RK.reshape({-1})})
                                           : std::vector<double>());
  return numbers;
}

// Bytes of this rank's rows between two operations.
int64_t StepRunner::row_bytes(const LanePart& batch) const {
  return batch.flow.layout.rows / pipeline_->scheme.tp * resources_.context.model.hidden() *
         comm::size_of(resources_.store.options().precision.compute);
}

// Bytes that the micro-batch holds between operations, in either direction.
int64_t StepRunner::flowing_bytes(const LanePart& batch) const {
  const int tensors =
      (batch.flow.activation_SH.defined() ? 1 : 0) + (batch.flow.gradient_SH.defined() ? 1 : 0);
  const auto& carried = batch.flow.layout.carried;
  return tensors * row_bytes(batch) + (carried != nullptr ? carried->bytes() : 0);
}

double StepRunner::gradient_norm() const {
  return std::sqrt(scalars_.gradient_squares) / static_cast<double>(std::max<int64_t>(1, scalars_.targets));
}

}  // namespace sluice::runtime
