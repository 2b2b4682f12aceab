#include "inference/kv_cache_capacity.h"

#include <algorithm>

#include "inference/kv_blocks.h"

namespace sluice::inference {

model::CacheBytes cache_of(const ModelSharding& cut, int stage) {
  model::CacheBytes bytes;
  const base::Interval run = cut.program.of_stage(cut.tp, cut.stages, stage);
  for (int64_t position = run.begin; position < run.end; ++position)
    bytes += cut.program.kind_at(position).cache({.tp = cut.tp}, cut.element_bytes);
  return bytes;
}

int64_t kv_blocks_in(const ModelSharding& cut, double bytes, int64_t max_num_seqs) {
  constexpr double kMost = 1 << 24;
  double blocks = kMost;
  for (int stage = 0; stage < cut.stages; ++stage) {
    const model::CacheBytes cache = cache_of(cut, stage);
    const double left = bytes - static_cast<double>(cache.sequence * max_num_seqs);
    blocks = std::min(blocks, left / static_cast<double>(std::max<int64_t>(1, kKvBlockTokens * cache.token)));
  }
  return static_cast<int64_t>(std::max(blocks, 0.0)) * cut.lanes;
}

}  // namespace sluice::inference
