#include "layers/key_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "model/block_kind.h"

namespace sluice::layers {
namespace {

bool is_recurrent(const model::Program& program, int64_t position) {
  return static_cast<const model::BlockKind&>(program.kind_at(position)).type().recurrent;
}

}  // namespace

KeyCache::KeyCache(const LayerContext& context, const model::Program& program, base::Interval blocks,
                   int64_t rows, int64_t texts, const at::TensorOptions& like)
    : first_block_(blocks.begin) {
  const model::Recurrent& own = context.shape.recurrent;
  const int64_t tp = context.parallel.tp;
  const at::TensorOptions wide = like.dtype(like.dtype() == at::kDouble ? at::kDouble : at::kFloat);
  for (int64_t position = blocks.begin; position < blocks.end; ++position) {
    at::Tensor& both = both_.emplace_back();
    CachedStates& states = states_.emplace_back();
    if (!is_recurrent(program, position)) {
      const model::Latent& latent = context.shape.latent;
      both = latent.kv_rank > 0
                 ? at::empty({rows, 1, latent.kv_rank + latent.rotated}, like)
                 : at::empty({rows, 2 * context.local_kv_heads(), context.shape.head_dim}, like);
      continue;
    }
    states = {at::empty({texts, own.value_heads / tp, own.key_width, own.value_width}, wide),
              at::empty({texts, own.convolution - 1, own.qkv_width() / tp}, like)};
  }
}

void KeyCache::fill_randomly() const {
  constexpr int64_t kDrawn = 1024;  // rows that are drawn; the others are the same again
  for (const at::Tensor& both : both_) {
    if (!both.defined()) continue;
    const int64_t rows = both.size(0), drawn = std::min(rows, kDrawn);
    const at::Tensor first = both.narrow(0, 0, drawn).normal_();
    for (int64_t row = drawn; row < rows; row += drawn) {
      const int64_t count = std::min(drawn, rows - row);
      both.narrow(0, row, count).copy_(first.narrow(0, 0, count));
    }
  }
  for (const auto& [state, last] : states_) {
    if (!state.defined()) continue;
    at::Tensor(state).normal_();
    at::Tensor(last).normal_();
  }
}

CachedKeys KeyCache::of(int64_t position) const {
  const at::Tensor& both_RJD = both_[static_cast<size_t>(position - first_block_)];
  if (both_RJD.size(1) == 1) return {both_RJD, both_RJD};
  const int64_t heads = both_RJD.size(1) / 2;
  return {both_RJD.narrow(1, 0, heads), both_RJD.narrow(1, heads, heads)};
}

}  // namespace sluice::layers
