#include "layers/key_cache.h"

#include <ATen/ops/empty.h>

namespace sluice::layers {

KeyCache::KeyCache(const LayerContext& context, const model::Program& program, int64_t rows,
                   const at::TensorOptions& like)
    : first_block_(program.blocks().begin) {
  for (int64_t block = 0; block < program.blocks().size(); ++block)
    both_.push_back(at::empty({rows, 2 * context.local_kv_heads(), context.shape.head_dim}, like));
}

CachedKeys KeyCache::of(int64_t position) const {
  const at::Tensor& both_RJD = both_[static_cast<size_t>(position - first_block_)];
  const int64_t heads = both_RJD.size(1) / 2;
  return {both_RJD.narrow(1, 0, heads), both_RJD.narrow(1, heads, heads)};
}

int64_t KeyCache::bytes_per_token(const LayerContext& context, const model::Program& program,
                                  int64_t element_bytes) {
  return program.blocks().size() * 2 * context.local_kv_heads() * context.shape.head_dim * element_bytes;
}

}  // namespace sluice::layers
