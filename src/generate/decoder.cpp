#include "generate/decoder.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/interval.h"
#include "layers/head.h"
#include "layers/make_operation.h"
#include "ops/device.h"

namespace sluice::generate {
namespace {

// The cache's rows of a text's tokens [begin, end); pages that lie side by side are one run.
std::vector<base::Interval> rows_of(const std::vector<int64_t>& pages, int64_t begin, int64_t end) {
  std::vector<base::Interval> runs;
  for (int64_t token = begin; token < end;) {
    const int64_t in_page = token % kPageTokens;
    const int64_t row = pages[static_cast<size_t>(token / kPageTokens)] * kPageTokens + in_page;
    const int64_t rows = std::min(kPageTokens - in_page, end - token);
    if (!runs.empty() && runs.back().end == row) {
      runs.back().end += rows;
    } else {
      runs.push_back({row, row + rows});
    }
    token += rows;
  }
  return runs;
}

at::Tensor indices(const std::vector<int64_t>& values, const at::Device& device) {
  const at::Tensor host = ops::upload_buffer(static_cast<int64_t>(values.size()), at::kLong, device);
  std::ranges::copy(values, host.mutable_data_ptr<int64_t>());
  return ops::upload(host, device);
}

}  // namespace

Decoder::Decoder(WholeModel model, int64_t pages)
    : model_(std::move(model)),
      cache_(model_.context, model_.table.program, pages * kPageTokens, model_.like),
      head_(layers::head_parameters({model_.table, model_.table.program.head(), model_.weights,
                                     layers::OperationShards::Of::kWeights, 1, 0})) {
  for (int64_t position = 0; position < model_.table.program.head(); ++position) {
    operations_.push_back(layers::make_operation(model_.context, model_.table, position, model_.weights, {}));
  }
}

int64_t Decoder::page_bytes(const WholeModel& model) {
  const auto element_bytes = static_cast<int64_t>(model.like.dtype().itemsize());
  return kPageTokens * layers::KeyCache::bytes_per_token(model.context, model.table.program, element_bytes);
}

at::Tensor Decoder::forward(std::span<const Piece> pieces, const Scheduler& scheduler) const {
  std::vector<layers::CachedPiece> cached;
  std::vector<int64_t> ids, wanted;
  for (const Piece& piece : pieces) {
    const std::vector<int64_t>& tokens = scheduler.tokens(piece.text);
    ids.insert(ids.end(), tokens.begin() + piece.begin, tokens.begin() + piece.end);
    if (piece.says) wanted.push_back(static_cast<int64_t>(ids.size()) - 1);
    cached.push_back({.length = piece.end - piece.begin,
                      .begin = piece.begin,
                      .before = rows_of(piece.pages, 0, piece.begin),
                      .own = rows_of(piece.pages, piece.begin, piece.end)});
  }
  const at::Device device = model_.like.device();
  layers::Flow flow;
  flow.layout = layers::cached_micro_batch_layout(cached, cache_, 1, device, model_.context.shape.window);
  flow.id_T = layers::row_values(ids, flow.layout, device);
  for (const auto& operation : operations_) operation->forward(flow, layers::Purpose::kEvaluate);
  if (wanted.empty()) return at::empty({0, model_.context.shape.vocab}, at::kDouble);
  const at::Tensor last_SH = flow.activation_SH.index_select(0, indices(wanted, device));
  return layers::head_logits(model_.context, head_, last_SH).to(at::kDouble).cpu();
}

}  // namespace sluice::generate
