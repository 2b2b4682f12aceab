#include "profile/stage_probe.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "generate/row_sampling.h"
#include "inference/kv_blocks.h"
#include "inference/kv_cache_capacity.h"
#include "layers/head.h"
#include "layers/kv_cache.h"
#include "layers/make_operation.h"
#include "layers/number_loss.h"
#include "layers/operation.h"
#include "model/parameters.h"
#include "ops/device.h"
#include "profile/timing.h"
#include "runtime/precision.h"

namespace sluice::profile {

namespace {

int64_t shard_size(const model::Bucket& bucket, const layers::TensorParallel& parallel) {
  return model::local_elements(bucket, {parallel.tp, parallel.t});
}

}  // namespace

// Has more than one block of a kind, so that saved tensors, and weights if large enough, leave the caches
// between passes.
struct StageProbe::Parts {
  Options options;
  model::ParameterTable table;
  layers::LayerContext context;
  std::vector<int> layers;                     // all layers
  std::vector<at::Tensor> weights, gradients;  // flat, by bucket
  std::vector<std::unique_ptr<layers::Operation>> operations;

  Parts(const Options& probe_options, const layers::TensorParallel& parallel) : options(probe_options) {
    options.model = model::short_model(options.model, options.most_blocks);
    table = model::parameter_table(options.model);
    context = layers::layer_context(options.model, parallel, options.longest_tokens, tensors(options.dtype));
    if (options.logits_chunk_bytes > 0) context.logits_chunk_bytes = options.logits_chunk_bytes;
    layers.resize(static_cast<size_t>(table.program.blocks().size()));
    std::iota(layers.begin(), layers.end(), 0);
    context.number_loss = layers::found_gradient();
    context.low_precision = {.format = options.low_precision, .layers = layers};
    const comm::DType master = runtime::Precision{options.dtype}.master();
    for (const model::Bucket& bucket : table.buckets) {
      const int64_t size = shard_size(bucket, parallel);
      weights.push_back(at::randn({size}, tensors(options.dtype)).mul_(0.02));
      gradients.push_back(at::zeros({size}, tensors(master)));
    }
    const auto of = [](const std::vector<at::Tensor>& flats) {
      return [&flats](int bucket) { return flats[static_cast<size_t>(bucket)]; };
    };
    for (int64_t position = 0; position < table.program.size(); ++position) {
      operations.push_back(layers::make_operation(context, table, position, of(weights), of(gradients)));
    }
  }

  at::TensorOptions tensors(comm::DType dtype) const {
    return at::TensorOptions().dtype(runtime::scalar_type(dtype)).device(options.device);
  }

  // Calls visit(begin, end, kind) for runs of operations of one kind, in the forward's order.
  template <typename Visit>
  void for_each_run(Visit visit) const {
    const model::Program& program = table.program;
    for (int64_t begin = 0, end = 0; begin < program.size(); begin = end) {
      while (end < program.size() && program.at(end).kind == program.at(begin).kind) ++end;
      visit(begin, end, static_cast<size_t>(program.at(begin).kind));
    }
  }
  template <typename Visit>
  void for_each_run_of_blocks_backward(Visit visit) const {
    const model::Program& program = table.program;
    for (int64_t end = program.blocks().end, begin = end; end > program.blocks().begin; end = begin) {
      while (begin > program.blocks().begin && program.at(begin - 1).kind == program.at(end - 1).kind)
        --begin;
      visit(begin, end, static_cast<size_t>(program.at(end - 1).kind));
    }
  }
  double blocks_of(size_t kind) const {
    double count = 0;
    for (int64_t i = 0; i < table.program.size(); ++i)
      count += table.program.at(i).kind == static_cast<int>(kind);
    return count;
  }
  const layers::Operation& at(int64_t position) const { return *operations[static_cast<size_t>(position)]; }
};

// Makes a micro-batch for the stage.
namespace {

layers::Flow random_flow(const std::vector<int64_t>& lengths, const layers::TensorParallel& parallel,
                         const model::Model& model, c10::Device device) {
  const int64_t vocab = model.vocab();
  // Heads other than a vocabulary's use one row of a sequence, or all rows.
  const bool numbers = !model.has_vocabulary();
  const bool last_alone = numbers && model.head().kind != model::HeadKind::kTokens;
  const auto target_of = [&](int64_t i, int64_t length) -> int64_t {
    if (numbers) return last_alone && i + 1 < length ? -1 : 0;
    return i + 1 < length ? (i + 1) * 7919 % vocab : -1;
  };
  std::vector<layers::PieceSpan> spans;
  for (const int64_t length : lengths) spans.push_back({length, 0});
  layers::Flow flow;
  flow.layout = layers::row_layout(spans, parallel.tp, device, layers::reach_of(model));
  // Token ids are the same on all ranks of the group, as required; a stride spreads them over the vocabulary.
  std::vector<int64_t> ids, targets;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(i * 7919 % vocab);
      targets.push_back(target_of(i, length));
    }
  }
  targets.resize(static_cast<size_t>(flow.layout.rows), -1);
  flow.id_T = layers::row_values(ids, flow.layout, device);
  flow.targets = layers::targets(targets, parallel, device);
  if (model.has_mtp()) {
    // A row's target is the next token.
    std::vector<int64_t> behind(targets.begin() + 1, targets.end());
    behind.push_back(-1);
    flow.mtp = {layers::row_values({targets.begin(), targets.begin() + std::ssize(ids)}, flow.layout, device),
                layers::targets(behind, parallel, device)};
  }
  return flow;
}

}  // namespace

StageProbe::StageProbe(const Options& options, const layers::TensorParallel& parallel)
    : parts_(std::make_unique<Parts>(options, parallel)) {}

StageProbe::~StageProbe() = default;

StageTimes StageProbe::run(const std::vector<int64_t>& lengths) {
  const Parts& p = *parts_;
  layers::Flow flow = random_flow(lengths, p.context.parallel, p.options.model, p.options.device);
  std::vector<layers::StatePtr> saved(p.operations.size()), deferred(p.operations.size());
  const auto forward = [&](int64_t position) {
    saved[static_cast<size_t>(position)] = p.at(position).forward(flow, layers::Purpose::kTrain);
  };
  StageTimes times(p.table.program.kinds().size());
  Stopwatch stopwatch(p.options.device);
  p.for_each_run([&](int64_t begin, int64_t end, size_t kind) {
    for (int64_t i = begin; i < end; ++i) forward(i);
    times[kind].forward_ns += stopwatch.lap_ns() / p.blocks_of(kind);
  });
  p.for_each_run_of_blocks_backward([&](int64_t begin, int64_t end, size_t kind) {
    for (int64_t i = end; i-- > begin;) {
      const auto at = static_cast<size_t>(i);
      deferred[at] = p.at(i).backward_input(flow, std::move(saved[at]));
    }
    times[kind].backward_input_ns += stopwatch.lap_ns() / p.blocks_of(kind);
  });
  p.for_each_run_of_blocks_backward([&](int64_t begin, int64_t end, size_t kind) {
    for (int64_t i = end; i-- > begin;) p.at(i).backward_weight(std::move(deferred[static_cast<size_t>(i)]));
    times[kind].backward_weight_ns += stopwatch.lap_ns() / p.blocks_of(kind);
  });
  p.at(0).backward(flow, nullptr);
  times.front().backward_input_ns = times.front().backward_ns = stopwatch.lap_ns();
  for (KindTimes& kind : times) kind.backward_ns = kind.backward_input_ns + kind.backward_weight_ns;
  if (p.context.parallel.tp == 1) return times;  // without TP both forms do the same work

  for (int64_t i = 0; i < p.table.program.size(); ++i) forward(i);
  for (KindTimes& kind : times) kind.backward_ns = 0;
  stopwatch.lap_ns();
  p.for_each_run_of_blocks_backward([&](int64_t begin, int64_t end, size_t kind) {
    for (int64_t i = end; i-- > begin;) p.at(i).backward(flow, std::move(saved[static_cast<size_t>(i)]));
    times[kind].backward_ns += stopwatch.lap_ns() / p.blocks_of(kind);
  });
  times.front().backward_ns = times.front().backward_input_ns;
  return times;
}

int64_t StageProbe::token_bytes() const {
  const inference::ModelSharding whole{parts_->table.program, parts_->context.parallel.tp, /*stages=*/1,
                                       comm::size_of(parts_->options.dtype)};
  return inference::cache_of(whole, 0).token;
}

std::vector<double> StageProbe::decode(int64_t texts, int64_t before, int64_t rows) const {
  const Parts& p = *parts_;
  const model::Program& program = p.table.program;
  const c10::Device device = p.options.device;
  const int64_t pages = inference::kv_blocks_for(before + rows);
  const layers::KvCache cache(p.context, program, program.blocks(), texts * pages * inference::kKvBlockTokens,
                              texts, p.tensors(p.options.dtype));
  cache.fill_randomly();
  std::vector<layers::CachedPiece> pieces;
  std::vector<int64_t> ids, last;
  for (int64_t text = 0; text < texts; ++text) {
    const int64_t first = text * pages * inference::kKvBlockTokens, own = first + before;
    pieces.push_back(
        {.length = rows,
         .begin = before,
         .before = before > 0 ? std::vector<base::Interval>{{first, own}} : std::vector<base::Interval>{},
         .own = {{own, own + rows}},
         .slot = text,
         .kv_blocks = std::vector<int64_t>(static_cast<size_t>(pages))});
    std::iota(pieces.back().kv_blocks.begin(), pieces.back().kv_blocks.end(), text * pages);
    for (int64_t row = 0; row < rows; ++row) ids.push_back((text + row) * 7919 % p.options.model.vocab());
    last.push_back(static_cast<int64_t>(ids.size()) - 1);
  }
  std::vector<double> times(program.kinds().size());
  Stopwatch stopwatch(device);
  layers::Flow flow;
  flow.layout = layers::cached_row_layout(pieces, cache, p.context.parallel.tp, device,
                                          layers::reach_of(p.options.model), inference::kKvBlockTokens);
  flow.id_T = layers::row_values(ids, flow.layout, device);
  p.for_each_run([&](int64_t begin, int64_t end, size_t kind) {
    if (kind + 1 == times.size()) return;
    for (int64_t i = begin; i < end; ++i) p.at(i).forward(flow, layers::Purpose::kEvaluate);
    times[kind] += stopwatch.lap_ns() / p.blocks_of(kind);
  });
  const at::Tensor x_TH = p.context.parallel.all_gather_rows(flow.activation_SH);
  const auto weights = [&](int bucket) { return p.weights[static_cast<size_t>(bucket)]; };
  const layers::HeadParameters head = layers::head_parameters(
      {p.table, program.head(), weights, layers::OperationShards::Of::kWeights, p.context.cut(/*layer=*/-1)});
  const at::Tensor logits_PV =
      layers::head_logits(p.context, head, x_TH.index_select(0, ops::to_device(last, device)));
  std::vector<generate::RowDraw> draws;
  for (int64_t text = 0; text < texts; ++text)
    draws.push_back({&p.options.sampling, static_cast<uint64_t>(text), before + rows, {}});
  generate::sample_rows(logits_PV, draws);
  times.back() = stopwatch.lap_ns();
  return times;
}

std::vector<ActivationBytes> StageProbe::activation_bytes(int64_t tokens) {
  const Parts& p = *parts_;
  const auto per_token = [&](int64_t bytes) { return (bytes + tokens - 1) / tokens; };
  std::vector<ActivationBytes> result(p.table.program.kinds().size());
  layers::Flow flow = random_flow({tokens}, p.context.parallel, p.options.model, p.options.device);
  p.at(0).forward(flow, layers::Purpose::kTrain);
  const base::Interval blocks = p.table.program.blocks();
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    layers::StatePtr saved = p.at(position).forward(flow, layers::Purpose::kTrain);
    const int64_t saved_bytes = saved->bytes();
    flow.gradient_SH = flow.activation_SH;
    layers::StatePtr deferred = p.at(position).backward_input(flow, std::move(saved));
    const int64_t deferred_bytes = deferred->bytes();
    p.at(position).backward_weight(std::move(deferred));
    result[static_cast<size_t>(p.table.program.at(position).kind)] = {
        per_token(saved_bytes), per_token(std::max<int64_t>(0, deferred_bytes - saved_bytes))};
  }
  return result;
}

}  // namespace sluice::profile
