#include "profile/stage_probe.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "layers/decoder_layer.h"
#include "layers/embedding.h"
#include "layers/head.h"
#include "layers/micro_batch_layout.h"
#include "model/parameters.h"
#include "profile/timing.h"
#include "runtime/precision.h"

namespace sluice::profile {

namespace {

// More than one, so that a layer's weights and saved tensors don't stay in the caches between its passes.
constexpr int64_t kMostLayers = 2;

int64_t shard_size(const model::Bucket& bucket, const layers::TensorParallel& parallel) {
  return model::tp_shard(bucket, parallel.tp, parallel.t).size();
}

}  // namespace

struct StageProbe::Parts {
  Options options;
  model::ParameterTable table;
  layers::LayerContext context;
  std::vector<layers::LayerParameters> weights, gradients;
  layers::EmbeddingParameters embedding, embedding_gradient;
  layers::HeadParameters head, head_gradient;

  Parts(const Options& probe_options, const layers::TensorParallel& parallel) : options(probe_options) {
    options.shape.layers = std::min(options.shape.layers, kMostLayers);
    table = model::parameter_table(options.shape);
    context = layers::layer_context(options.shape, parallel, options.longest_tokens, tensors(options.dtype));
    if (options.logits_chunk_bytes > 0) context.logits_chunk_bytes = options.logits_chunk_bytes;
    const comm::DType master = runtime::Precision{options.dtype}.master();
    const auto random = [&](const model::Bucket& bucket) {
      return at::randn({shard_size(bucket, parallel)}, tensors(options.dtype)).mul_(0.02);
    };
    const auto zero = [&](const model::Bucket& bucket) {
      return at::zeros({shard_size(bucket, parallel)}, tensors(master));
    };
    open(random, weights, embedding, head);
    open(zero, gradients, embedding_gradient, head_gradient);
  }

  at::TensorOptions tensors(comm::DType dtype) const {
    return at::TensorOptions().dtype(runtime::scalar_type(dtype)).device(options.device);
  }

  template <typename Flat>
  void open(Flat flat, std::vector<layers::LayerParameters>& layers,
            layers::EmbeddingParameters& embedding_out, layers::HeadParameters& head_out) {
    const auto [group, tp, t] = context.parallel;
    for (int64_t layer = 0; layer < options.shape.layers; ++layer) {
      layers.push_back(layers::layer_parameters(table.layer(layer), flat(table.layer(layer)), tp, t));
    }
    const at::Tensor embedding_flat = flat(table.embedding());
    embedding_out = layers::embedding_parameters(table.embedding(), embedding_flat, tp, t);
    head_out = layers::head_parameters(table, flat(table.head()), embedding_flat, tp, t);
  }

  size_t layers() const { return weights.size(); }
};

// One micro-batch on its way through the stage.
namespace {

struct Batch {
  layers::MicroBatchLayout layout;
  at::Tensor id_T;
  layers::Targets targets;
};

Batch random_batch(const std::vector<int64_t>& lengths, const layers::TensorParallel& parallel, int64_t vocab,
                   c10::Device device) {
  std::vector<layers::PieceSpan> spans;
  for (const int64_t length : lengths) spans.push_back({length, 0});
  Batch batch;
  batch.layout = layers::micro_batch_layout(spans, parallel.tp, device);
  // The same on all ranks of the group, as ids must be; a stride spreads them over the vocabulary.
  std::vector<int64_t> ids, targets;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(i * 7919 % vocab);
      targets.push_back(i + 1 < length ? (i + 1) * 7919 % vocab : -1);
    }
  }
  targets.resize(static_cast<size_t>(batch.layout.rows), -1);
  batch.id_T = layers::row_values(ids, batch.layout, device);
  batch.targets = layers::targets(targets, device);
  return batch;
}

}  // namespace

StageProbe::StageProbe(const Options& options, const layers::TensorParallel& parallel)
    : parts_(std::make_unique<Parts>(options, parallel)) {}

StageProbe::~StageProbe() = default;

StageTimes StageProbe::run(const std::vector<int64_t>& lengths) {
  Parts& p = *parts_;
  const Batch batch = random_batch(lengths, p.context.parallel, p.options.shape.vocab, p.options.device);
  const double layers = static_cast<double>(p.layers());
  std::vector<layers::LayerSaved> saved(p.layers());
  std::vector<layers::LayerDeferred> deferred(p.layers());
  at::Tensor rows_SH;
  const auto forward = [&] {
    for (size_t i = 0; i < p.layers(); ++i) {
      rows_SH = layers::layer_forward(p.context, batch.layout, p.weights[i], rows_SH, &saved[i]);
    }
  };
  StageTimes times;
  Stopwatch stopwatch(p.options.device);
  rows_SH = layers::embedding_forward(p.context, p.embedding, batch.id_T);
  times.embedding_forward_ns = stopwatch.lap_ns();
  forward();
  times.forward_ns = stopwatch.lap_ns() / layers;
  rows_SH = layers::head_forward_backward(p.context, p.head, rows_SH, batch.targets, p.head_gradient).dx_SH;
  times.head_ns = stopwatch.lap_ns();
  for (size_t i = p.layers(); i-- > 0;) {
    rows_SH = layers::layer_backward_input(p.context, batch.layout, p.weights[i], std::move(saved[i]),
                                           rows_SH, p.gradients[i], deferred[i]);
  }
  times.backward_input_ns = stopwatch.lap_ns() / layers;
  for (size_t i = p.layers(); i-- > 0;) {
    layers::layer_backward_weight(p.context, std::move(deferred[i]), p.gradients[i]);
  }
  times.backward_weight_ns = stopwatch.lap_ns() / layers;
  layers::embedding_backward(p.context, batch.id_T, rows_SH, p.embedding_gradient);
  times.embedding_backward_ns = stopwatch.lap_ns();
  times.backward_ns = times.backward_input_ns + times.backward_weight_ns;
  if (p.context.parallel.tp == 1) return times;  // both forms do the same work

  forward();
  stopwatch.lap_ns();
  for (size_t i = p.layers(); i-- > 0;) {
    rows_SH = layers::layer_backward(p.context, batch.layout, p.weights[i], std::move(saved[i]), rows_SH,
                                     p.gradients[i]);
  }
  times.backward_ns = stopwatch.lap_ns() / layers;
  return times;
}

ActivationBytes StageProbe::activation_bytes(int64_t tokens) {
  Parts& p = *parts_;
  const Batch batch = random_batch({tokens}, p.context.parallel, p.options.shape.vocab, p.options.device);
  layers::LayerSaved saved;
  layers::LayerDeferred deferred;
  const at::Tensor x_SH = layers::embedding_forward(p.context, p.embedding, batch.id_T);
  const at::Tensor y_SH = layers::layer_forward(p.context, batch.layout, p.weights[0], x_SH, &saved);
  const int64_t saved_bytes = layers::bytes_of(saved);
  layers::layer_backward_input(p.context, batch.layout, p.weights[0], std::move(saved), y_SH, p.gradients[0],
                               deferred);
  const int64_t deferred_bytes = layers::bytes_of(deferred);
  layers::layer_backward_weight(p.context, std::move(deferred), p.gradients[0]);
  const auto per_token = [&](int64_t bytes) { return (bytes + tokens - 1) / tokens; };
  return {per_token(saved_bytes), per_token(std::max<int64_t>(0, deferred_bytes - saved_bytes))};
}

}  // namespace sluice::profile
