#include "layers/key_cache.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "model/block_kind.h"

namespace sluice::layers {
namespace {

bool is_recurrent(const model::Program& program, int64_t position) {
  return static_cast<const model::BlockKind&>(program.kind_at(position)).type().recurrent;
}

// Those of some blocks that are recurrent, or that are not.
int64_t count(const model::Program& program, base::Interval blocks, bool recurrent) {
  int64_t counted = 0;
  for (int64_t position = blocks.begin; position < blocks.end; ++position)
    counted += is_recurrent(program, position) == recurrent ? 1 : 0;
  return counted;
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
      both = at::empty({rows, 2 * context.local_kv_heads(), context.shape.head_dim}, like);
      continue;
    }
    states = {at::empty({texts, own.value_heads / tp, own.key_width, own.value_width}, wide),
              at::empty({texts, own.convolution - 1, own.qkv_width() / tp}, like)};
  }
}

CachedKeys KeyCache::of(int64_t position) const {
  const at::Tensor& both_RJD = both_[static_cast<size_t>(position - first_block_)];
  const int64_t heads = both_RJD.size(1) / 2;
  return {both_RJD.narrow(1, 0, heads), both_RJD.narrow(1, heads, heads)};
}

int64_t KeyCache::bytes_per_token(const LayerContext& context, const model::Program& program,
                                  base::Interval blocks, int64_t element_bytes) {
  return count(program, blocks, /*recurrent=*/false) * 2 * context.local_kv_heads() * context.shape.head_dim *
         element_bytes;
}

int64_t KeyCache::bytes_per_text(const LayerContext& context, const model::Program& program,
                                 base::Interval blocks, int64_t element_bytes) {
  const model::Recurrent& own = context.shape.recurrent;
  const int64_t state =
      own.value_heads * own.key_width * own.value_width * std::max<int64_t>(4, element_bytes);
  const int64_t last = std::max<int64_t>(0, own.convolution - 1) * own.qkv_width() * element_bytes;
  return count(program, blocks, /*recurrent=*/true) * (state + last) / context.parallel.tp;
}

}  // namespace sluice::layers
