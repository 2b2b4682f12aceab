#include "runtime/step_runner.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "layers/embedding.h"
#include "layers/memory.h"
#include "runtime/read_scalars.h"
#include "runtime/stream_use.h"

namespace sluice::runtime {

using graph::Node;
using graph::NodeKind;

namespace {

// What one lane has of a unit. Where heads are exchanged all of it is shared with the other lanes, in a ring
// what is no whole sequence.
std::vector<layers::PieceSpan> spans_of(const strategy::Unit& unit, int lane,
                                        const strategy::StepPlan& plan) {
  std::vector<layers::PieceSpan> spans;
  for (const strategy::Piece& piece : unit.pieces_on(lane)) {
    const int shared = unit.head_lanes() == 1 && plan.is_whole(piece) ? -1 : int{piece.sequence};
    spans.push_back({.length = piece.tokens(), .begin = piece.begin, .shared = shared});
  }
  return spans;
}

}  // namespace

StepRunner::StepRunner(const graph::StepGraph& graph, int rank, const StepTokens& tokens,
                       const StepResources& resources, const AdamW* optimizer)
    : graph_(graph),
      rank_(rank),
      resources_(resources),
      optimizer_(optimizer),
      place_(strategy::places(graph.plan.strategy(), graph.world_size)[static_cast<size_t>(rank)]) {
  if (resources_.lanes != nullptr) exchange_bytes_before_ = resources_.lanes->sent_bytes();
  resources_.store.open_step(graph.links->layout.holdings(rank));
  pull_memories_ = pull_memories(resources_.store);
  push_memories_ = push_memories(resources_.store);
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
  stage_layers_ = strategy::layers_of_stage(table.shape.layers, scheme.pp, place_.stage);

  const auto views = [&](auto make, const model::Bucket& bucket, auto member) {
    return make(bucket, resources_.store.shard(bucket.index).*member, scheme.tp, place_.t);
  };
  for (int64_t layer = stage_layers_.begin; layer < stage_layers_.end; ++layer) {
    weights_.push_back(views(layers::layer_parameters, table.layer(layer), &ComputeShard::parameters));
    gradients_.push_back(views(layers::layer_parameters, table.layer(layer), &ComputeShard::gradients));
  }
  const bool first_stage = place_.stage == 0;
  const bool last_stage = place_.stage == scheme.pp - 1;
  if (first_stage) {
    embedding_ = views(layers::embedding_parameters, table.embedding(), &ComputeShard::parameters);
    embedding_gradient_ = views(layers::embedding_parameters, table.embedding(), &ComputeShard::gradients);
  }
  if (last_stage) {
    const auto head_views = [&](auto member) {
      const at::Tensor tied =
          table.shape.tie_embeddings ? resources_.store.shard(table.embedding().index).*member : at::Tensor();
      return layers::head_parameters(table, resources_.store.shard(table.head().index).*member, tied,
                                     scheme.tp, place_.t);
    };
    head_ = head_views(&ComputeShard::parameters);
    head_gradient_ = head_views(&ComputeShard::gradients);
  }

  resources_.context.lanes = resources_.lanes;
  open_micro_batches(tokens);
}

void StepRunner::open_micro_batches(const StepTokens& tokens) {
  const c10::Device device = resources_.store.options().device;
  size_t next = 0;  // of `tokens`
  for (size_t u = 0; u < plan_->units.size(); ++u) {
    const strategy::Unit& unit = plan_->units[u];
    if (!unit.covers(place_.lane)) continue;
    SLUICE_ASSERT(next < tokens.size(), base::text("tokens of only ", next, " micro-batches"));
    const MicroBatchTokens& own = tokens[next++];
    MicroBatch& batch = micro_batches_[static_cast<int>(u)];
    batch.memory = unit.memory;
    batch.layout = layout_of(unit);
    if (embedding_) batch.id_T = layers::row_values(own.tokens, batch.layout, device);
    if (head_) {
      std::vector<int64_t> target_of_row = own.targets;
      target_of_row.resize(static_cast<size_t>(batch.layout.rows), -1);
      batch.targets = layers::targets(target_of_row, device);
    }
    batch.saved.resize(static_cast<size_t>(stage_layers_.size()));
    batch.deferred.resize(static_cast<size_t>(stage_layers_.size()));
    batch.away.resize(static_cast<size_t>(stage_layers_.size()));
  }
  SLUICE_ASSERT(next == tokens.size(), base::text("tokens of ", tokens.size(), " micro-batches for ", next));
}

layers::MicroBatchLayout StepRunner::layout_of(const strategy::Unit& unit) const {
  const c10::Device device = resources_.store.options().device;
  const int tp = pipeline_->scheme.tp;
  if (unit.lanes == 1)
    return layers::micro_batch_layout(spans_of(unit, place_.lane, graph_.plan), tp, device);
  layers::UnitSpans spans{.lane = place_.lane - unit.first_lane, .head_lanes = unit.head_lanes()};
  for (int lane = unit.first_lane; lane < unit.end_lane(); ++lane) {
    spans.members.push_back(pipeline_->rank_of(place_.stage, lane, place_.t));
    spans.lanes.push_back(spans_of(unit, lane, graph_.plan));
  }
  return layers::unit_micro_batch_layout(spans, tp, device);
}

void StepRunner::run(const Node& node) {
  const auto round = static_cast<size_t>(node.round);
  const comm::DType compute = resources_.store.options().precision.compute;
  const comm::DType master = resources_.store.options().precision.master();
  switch (node.kind) {
    case NodeKind::kPullInter:
      return resources_.link_inter.run(resources_.wires.pull[round].inter, pull_memories_, compute);
    case NodeKind::kPullIntra:
      return resources_.link_intra.run(resources_.wires.pull[round].intra, pull_memories_, compute);
    case NodeKind::kPushIntra:
      return resources_.link_intra.run(resources_.wires.push[round].intra, push_memories_, master);
    case NodeKind::kPushInter:
      return resources_.link_inter.run(resources_.wires.push[round].inter, push_memories_, master);
    case NodeKind::kForward: return forward(node);
    case NodeKind::kBackward: return backward(node);
    case NodeKind::kBackwardInput: return backward_input(node);
    case NodeKind::kBackwardWeight: return backward_weight(node);
    case NodeKind::kSendActivation: return send_activation(node);
    case NodeKind::kSendGradient: return send_gradient(node);
    case NodeKind::kOffload: return offload(node);
    case NodeKind::kFetch: return fetch(node);
    case NodeKind::kReduceScalars: return reduce_scalars();
    case NodeKind::kUpdate:
      SLUICE_ASSERT(optimizer_ != nullptr, "an evaluation graph has an update");
      // Nothing good comes of gradients that are not numbers: masters stay as they are, on all ranks.
      if (!std::isfinite(scalars_.loss_sum) || !std::isfinite(scalars_.gradient_squares)) return;
      return update(resources_.store, *optimizer_, std::max<int64_t>(1, scalars_.targets), gradient_norm());
  }
}

void StepRunner::forward(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  use_on_current_stream(batch.activation_SH);
  if (node.embedding) {
    batch.activation_SH = layers::embedding_forward(resources_.context, *embedding_, batch.id_T);
    activations_.take(row_bytes(batch));
  }
  for (int64_t layer = node.layers.begin; layer < node.layers.end; ++layer) {
    const size_t i = stage_index(layer);
    layers::LayerSaved* saved = optimizer_ != nullptr ? &batch.saved[i] : nullptr;
    batch.activation_SH =
        layers::layer_forward(resources_.context, batch.layout, weights_[i], batch.activation_SH, saved);
    if (saved == nullptr) continue;
    const int64_t saved_bytes = layers::bytes_of(*saved);
    activations_.take(saved_bytes);
    if (!batch.memory.recompute) continue;
    layers::drop_recomputable(*saved);
    activations_.give_back(saved_bytes - layers::bytes_of(*saved));
  }
  if (node.head) head(batch);
}

// Loss and its gradient in one pass; every TP rank finds the same loss, the first one counts it.
void StepRunner::head(MicroBatch& batch) {
  at::Tensor loss_sum;
  if (optimizer_ != nullptr) {
    layers::HeadResult result = layers::head_forward_backward(resources_.context, *head_, batch.activation_SH,
                                                              batch.targets, *head_gradient_);
    loss_sum = std::move(result.loss_sum);
    batch.gradient_SH = std::move(result.dx_SH);
  } else {
    activations_.give_back(row_bytes(batch));
    loss_sum = layers::head_loss(resources_.context, *head_, batch.activation_SH, batch.targets);
  }
  batch.activation_SH = at::Tensor();
  if (place_.t != 0) return;
  own_losses_.push_back(std::move(loss_sum));
  own_targets_ += batch.targets.row_R.numel();
}

void StepRunner::backward(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  use_on_current_stream(batch.gradient_SH);
  for (int64_t layer = node.layers.end - 1; layer >= node.layers.begin; --layer) {
    const size_t i = stage_index(layer);
    for (const auto& [tensor, dimension] : layers::rows_of(batch.saved[i])) use_on_current_stream(tensor);
    const int64_t kept = layers::bytes_of(batch.saved[i]);
    activations_.take(recomputed_bytes(batch));
    batch.gradient_SH = layers::layer_backward(resources_.context, batch.layout, weights_[i],
                                               std::move(batch.saved[i]), batch.gradient_SH, gradients_[i]);
    activations_.give_back(kept + recomputed_bytes(batch));
  }
  finish_backward(node, batch);
}

void StepRunner::backward_input(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  use_on_current_stream(batch.gradient_SH);
  for (int64_t layer = node.layers.end - 1; layer >= node.layers.begin; --layer) {
    const size_t i = stage_index(layer);
    for (const auto& [tensor, dimension] : layers::rows_of(batch.saved[i])) use_on_current_stream(tensor);
    const int64_t kept = layers::bytes_of(batch.saved[i]);
    activations_.take(recomputed_bytes(batch));
    batch.gradient_SH =
        layers::layer_backward_input(resources_.context, batch.layout, weights_[i], std::move(batch.saved[i]),
                                     batch.gradient_SH, gradients_[i], batch.deferred[i]);
    activations_.give_back(kept + recomputed_bytes(batch));
    activations_.take(layers::bytes_of(batch.deferred[i]));
  }
  finish_backward(node, batch);
}

void StepRunner::finish_backward(const Node& node, MicroBatch& batch) {
  if (!node.embedding) return;
  layers::embedding_backward(resources_.context, batch.id_T, batch.gradient_SH, *embedding_gradient_);
  batch.gradient_SH = at::Tensor();
  activations_.give_back(row_bytes(batch));
}

void StepRunner::backward_weight(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  for (int64_t layer = node.layers.end - 1; layer >= node.layers.begin; --layer) {
    const size_t i = stage_index(layer);
    activations_.give_back(layers::bytes_of(batch.deferred[i]));
    layers::layer_backward_weight(resources_.context, std::move(batch.deferred[i]), gradients_[i]);
  }
}

// Sends this rank's rows, or receives them into a new tensor; rows are the TP shard of the micro-batch.
void StepRunner::pass(comm::Communicator& communicator, bool sender, int peer, const MicroBatch& batch,
                      at::Tensor& rows) {
  const ParameterStore::Options& options = resources_.store.options();
  if (sender) {
    use_on_current_stream(rows);
    const at::Tensor contiguous = rows.contiguous();
    communicator.send(contiguous.const_data_ptr(), static_cast<int64_t>(contiguous.nbytes()), peer)->wait();
    rows = at::Tensor();
    activations_.give_back(row_bytes(batch));
    return;
  }
  const int64_t shard_rows = batch.layout.rows / pipeline_->scheme.tp;
  at::Tensor received =
      at::empty({shard_rows, resources_.context.shape.hidden},
                at::TensorOptions().dtype(scalar_type(options.precision.compute)).device(options.device));
  communicator.receive(received.mutable_data_ptr(), static_cast<int64_t>(received.nbytes()), peer)->wait();
  rows = std::move(received);
  activations_.take(row_bytes(batch));
}

void StepRunner::send_activation(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  const bool sender = place_.stage == node.stage;
  const int other_stage = sender ? node.stage + 1 : node.stage;
  pass(resources_.communicators.activation(), sender, pipeline_->rank_of(other_stage, place_.lane, place_.t),
       batch, batch.activation_SH);
}

void StepRunner::send_gradient(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  const bool sender = place_.stage == node.stage + 1;
  const int other_stage = sender ? node.stage : node.stage + 1;
  pass(resources_.communicators.gradient(), sender, pipeline_->rank_of(other_stage, place_.lane, place_.t),
       batch, batch.gradient_SH);
}

void StepRunner::offload(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  for (int64_t layer = node.layers.begin; layer < node.layers.end; ++layer) {
    const size_t i = stage_index(layer);
    batch.away[i].offload(batch.saved[i], batch.memory.offload_permille, {activations_, host_});
  }
}

void StepRunner::fetch(const Node& node) {
  MicroBatch& batch = micro_batch(node);
  for (int64_t layer = node.layers.begin; layer < node.layers.end; ++layer) {
    const size_t i = stage_index(layer);
    batch.away[i].fetch(batch.saved[i], {activations_, host_});
  }
}

void StepRunner::reduce_scalars() {
  const double squares = optimizer_ != nullptr ? squared_gradient_norm(resources_.store) : 0.0;
  double loss_sum = 0;
  for (const double loss : read_scalars(own_losses_)) loss_sum += loss;
  const std::array<double, 3> own{squares, loss_sum, static_cast<double>(own_targets_)};
  std::vector<double> all(own.size() * static_cast<size_t>(graph_.world_size));
  resources_.communicators.control().all_gather(own.data(), all.data(), sizeof own)->wait();
  for (size_t i = 0; i < all.size(); i += own.size()) {
    scalars_.gradient_squares += all[i];
    scalars_.loss_sum += all[i + 1];
    scalars_.targets += static_cast<int64_t>(all[i + 2]);
  }
}

// This rank's row of each token between two stages.
int64_t StepRunner::row_bytes(const MicroBatch& batch) const {
  return batch.layout.rows / pipeline_->scheme.tp * resources_.context.shape.hidden *
         comm::size_of(resources_.store.options().precision.compute);
}

int64_t StepRunner::recomputed_bytes(const MicroBatch& batch) const {
  if (!batch.memory.recompute) return 0;
  const layers::LayerCut cut{pipeline_->scheme.tp, place_.t,
                             comm::size_of(resources_.store.options().precision.compute)};
  return layers::recomputed_bytes(resources_.context.shape, cut, batch.layout.rows);
}

double StepRunner::gradient_norm() const {
  return std::sqrt(scalars_.gradient_squares) / static_cast<double>(std::max<int64_t>(1, scalars_.targets));
}

}  // namespace sluice::runtime
