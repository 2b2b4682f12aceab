#include "layers/memory.h"

#include <algorithm>

#include "base/interval.h"
#include "model/head_parts.h"
#include "model/kind.h"

namespace sluice::layers {
namespace {

// Elements a row of what this rank holds of every row.
struct Widths {
  int64_t q = 0;
  int64_t qkv = 0;
  int64_t unnormed = 0;  // of heads that are normed
  int64_t gate = 0;      // of heads that are gated
  int64_t ffn = 0;
};

// Bytes of what a lane attends with: queries, keys and values; outputs that are not its tokens'; statistics.
struct AttendedBytes {
  int64_t qkv = 0;
  int64_t out = 0;
  int64_t lse = 0;
};

Widths widths(const model::Shape& shape, const LayerCut& cut) {
  Widths w;
  w.q = shape.heads / cut.tp * shape.head_dim;
  // Key heads are not cut below one: with more ranks than heads, several ranks hold the same one.
  w.qkv = w.q + 2 * std::max<int64_t>(1, shape.kv_heads / cut.tp) * shape.head_dim;
  if (shape.qk_norm != model::QkNorm::kNone) w.unnormed = (w.qkv + w.q) / 2;
  if (shape.gated) w.gate = w.q;
  w.ffn = base::even_part(shape.ffn_hidden, cut.tp, cut.t).size();
  return w;
}

AttendedBytes attended_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows) {
  const model::HeadPart part =
      model::head_part(model::head_counts(shape, cut.tp), cut.head_lanes, cut.head_lane);
  const bool exchanges = cut.head_lanes > 1;
  const int64_t attended = exchanges ? cut.attended_rows : rows;
  const int64_t head_bytes = shape.head_dim * cut.element_bytes;
  const model::HeadPart all = model::head_part(model::head_counts(shape, cut.tp), 1, 0);
  return {(attended * part.query_key_value_heads() + cut.own_rows * all.query_key_value_heads()) * head_bytes,
          exchanges ? attended * part.queries.size() * head_bytes : 0,
          (attended * part.queries.size() + cut.own_rows * all.queries.size()) *
              std::max<int64_t>(4, cut.element_bytes)};
}

template <typename Bytes>
int64_t per_token(Bytes bytes, const model::Shape& shape, int tp, int64_t element_bytes) {
  int64_t most = 0;
  for (int t = 0; t < tp; ++t) most = std::max(most, bytes(shape, LayerCut{tp, t, element_bytes}, tp));
  return (most + tp - 1) / tp;
}

// Of a row shard, what a part keeps for its norm: the scale, or behind the part what it took.
int64_t norm_bytes(const model::Shape& shape, const LayerCut& cut) {
  return model::norm_bytes_of(shape, cut.element_bytes);
}

}  // namespace

LayerCut cut_of(const LayerContext& context, const MicroBatchLayout& layout, const at::Tensor& weight) {
  const auto [group, tp, t] = context.parallel;
  LayerCut cut{tp, t, static_cast<int64_t>(weight.element_size())};
  if (layout.heads.exchanges()) {
    cut.head_lanes = layout.heads.lanes();
    cut.head_lane = layout.heads.lane;
    cut.attended_rows = layout.heads.rows();
    if (layout.own) cut.own_rows = layout.own->tokens;
  }
  return cut;
}

int64_t saved_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows) {
  const Widths w = widths(shape, cut);
  // Both halves' inputs and what their norms need are row shards.
  const int64_t shard = rows / cut.tp * 2 * (shape.hidden * cut.element_bytes + norm_bytes(shape, cut));
  const AttendedBytes attended = attended_bytes(shape, cut, rows);
  return shard + rows * (w.unnormed + w.gate + w.q + 2 * w.ffn) * cut.element_bytes + attended.qkv +
         attended.out + attended.lse;
}

int64_t border_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows) {
  const Widths w = widths(shape, cut);
  return rows / cut.tp * shape.hidden * cut.element_bytes + rows * (w.q + w.gate) * cut.element_bytes +
         attended_bytes(shape, cut, rows).lse;
}

int64_t deferred_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows) {
  const Widths w = widths(shape, cut);
  // Both halves' normed inputs and output gradients are row shards.
  const int64_t shard = rows / cut.tp * 4 * shape.hidden;
  return (shard + rows * (w.qkv + w.gate + w.q + 3 * w.ffn)) * cut.element_bytes;
}

int64_t recomputed_attention_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows) {
  const Widths w = widths(shape, cut);
  const AttendedBytes attended = attended_bytes(shape, cut, rows);
  return rows / cut.tp * norm_bytes(shape, cut) + rows * w.unnormed * cut.element_bytes + attended.qkv +
         attended.out;
}

int64_t recomputed_mlp_bytes(const model::Shape& shape, const LayerCut& cut, int64_t rows) {
  const int64_t input = shape.hidden * cut.element_bytes + norm_bytes(shape, cut);
  return rows / cut.tp * input + rows * 2 * widths(shape, cut).ffn * cut.element_bytes;
}

int64_t saved_bytes_per_token(const model::Shape& shape, int tp, int64_t element_bytes) {
  return per_token(saved_bytes, shape, tp, element_bytes);
}

int64_t deferred_bytes_per_token(const model::Shape& shape, int tp, int64_t element_bytes) {
  return per_token(deferred_bytes, shape, tp, element_bytes);
}

}  // namespace sluice::layers
