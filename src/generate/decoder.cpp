#include "generate/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max.h>

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

}  // namespace

Decoder::Decoder(WholeModel model, int64_t pages, int64_t most_texts)
    : model_(std::move(model)),
      cache_(model_.context, model_.table.program, pages * kPageTokens, most_texts, model_.like),
      head_(layers::head_parameters({model_.table, model_.table.program.head(), model_.weights,
                                     layers::OperationShards::Of::kWeights, {}})) {
  for (int64_t position = 0; position < model_.table.program.head(); ++position) {
    operations_.push_back(layers::make_operation(model_.context, model_.table, position, model_.weights, {}));
  }
}

int64_t Decoder::page_bytes(const WholeModel& model) {
  const auto element_bytes = static_cast<int64_t>(model.like.dtype().itemsize());
  return kPageTokens * layers::KeyCache::bytes_per_token(model.context, model.table.program, element_bytes);
}

// Of a model without attention pages take nothing, and any number will do.
int64_t Decoder::pages_in(const WholeModel& model, double bytes, int64_t most_texts) {
  constexpr double kMost = 1 << 24;
  const auto element_bytes = static_cast<int64_t>(model.like.dtype().itemsize());
  const int64_t text = layers::KeyCache::bytes_per_text(model.context, model.table.program, element_bytes);
  const double left = bytes - static_cast<double>(text * most_texts);
  const auto page = static_cast<double>(std::max<int64_t>(1, page_bytes(model)));
  return static_cast<int64_t>(std::clamp(left / page, 0.0, kMost));
}

Passed Decoder::forward(std::span<const Piece> pieces, const Scheduler& scheduler) const {
  std::vector<layers::CachedPiece> cached;
  std::vector<int64_t> ids, wanted, scored, targets;
  for (const Piece& piece : pieces) {
    const std::vector<int64_t>& tokens = scheduler.tokens(piece.text);
    for (int64_t row = 0; row < piece.scored; ++row) {
      scored.push_back(static_cast<int64_t>(ids.size()) + row);
      targets.push_back(tokens[static_cast<size_t>(piece.begin + row + 1)]);
    }
    ids.insert(ids.end(), tokens.begin() + piece.begin, tokens.begin() + piece.end);
    if (piece.says) wanted.push_back(static_cast<int64_t>(ids.size()) - 1);
    cached.push_back({.length = piece.end - piece.begin,
                      .begin = piece.begin,
                      .before = rows_of(piece.pages, 0, piece.begin),
                      .own = rows_of(piece.pages, piece.begin, piece.end),
                      .slot = piece.slot});
  }
  const at::Device device = model_.like.device();
  layers::Flow flow;
  flow.layout =
      layers::cached_micro_batch_layout(cached, cache_, 1, device, layers::reach_of(model_.context.shape));
  flow.id_T = layers::row_values(ids, flow.layout, device);
  for (const auto& operation : operations_) operation->forward(flow, layers::Purpose::kEvaluate);
  Passed passed{.logits_PV = at::empty({0, model_.context.shape.vocab}, at::kDouble), .scores = {}};
  const auto rows = [&](const std::vector<int64_t>& of) {
    return flow.activation_SH.index_select(0, ops::to_device(of, device));
  };
  if (!wanted.empty())
    passed.logits_PV = layers::head_logits(model_.context, head_, rows(wanted)).to(at::kDouble).cpu();
  if (!scored.empty()) passed.scores = scores_of(rows(scored), targets);
  return passed;
}

// Logits of few rows at once.
std::vector<Score> Decoder::scores_of(const at::Tensor& x_RH, const std::vector<int64_t>& target_R) const {
  std::vector<Score> scores;
  const int64_t rows = x_RH.size(0);
  const int64_t chunk = layers::head_chunk_rows(model_.context, sizeof(double));
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const at::Tensor logits_CV = layers::head_logits(model_.context, head_, x_RH.narrow(0, begin, count));
    const at::Tensor log_CV = at::log_softmax(logits_CV.to(at::kDouble), 1).cpu();
    const auto [most_C, likeliest_C] = log_CV.max(1);
    for (int64_t row = 0; row < count; ++row) {
      const int64_t target = target_R[static_cast<size_t>(begin + row)];
      scores.push_back({log_CV.const_data_ptr<double>()[row * log_CV.size(1) + target],
                        likeliest_C.const_data_ptr<int64_t>()[row], most_C.const_data_ptr<double>()[row]});
    }
  }
  return scores;
}

}  // namespace sluice::generate
