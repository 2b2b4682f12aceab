// Random shapes and strategies for the tests of this module and of its users.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "link/layout.h"
#include "model/outline.h"
#include "model/program.h"

namespace sluice::link {

struct Case {
  model::ParameterTable table;
  strategy::Strategy strategy;
  int world_size = 1;
  int gpus_per_node = 1;
};

inline model::Outline random_shape(base::Rng& rng) {
  model::Outline outline;
  outline.layers = rng.between(1, 5);
  outline.kv_heads = rng.between(1, 4);
  outline.heads = outline.kv_heads * rng.between(1, 3);
  outline.head_dim = 2 * rng.between(1, 2);
  outline.hidden = 2 * rng.between(1, 5);
  outline.ffn_hidden = rng.between(8, 19);
  outline.vocab = rng.between(9, 31);
  outline.tie_embeddings = rng.below(2) == 0;
  return outline;
}

// Pipelines on random ranks, until none fits or 20 trials are over; at least one. Some ranks stay idle.
inline strategy::Strategy random_strategy(base::Rng& rng, const model::Outline& outline, int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (rng.below(2) == 0) rng.shuffle(ranks);
  strategy::Strategy result;
  size_t used = 0;
  for (int trial = 0; trial < 20; ++trial) {
    strategy::Scheme scheme{static_cast<int>(rng.between(1, 6)), static_cast<int>(rng.between(1, 3)),
                            static_cast<int>(rng.between(1, 4))};
    const int share = static_cast<int>(rng.between(1, 4));
    if (scheme.cp % share == 0) scheme.fsdp = share;
    const auto needed = static_cast<size_t>(scheme.ranks());
    if (used + needed > ranks.size() || scheme.pp > outline.layers) continue;
    if (!model::tp_fault(outline, scheme.tp).empty()) continue;
    const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(used);
    if (scheme.fsdp > 1) std::sort(first, first + scheme.ranks());
    result.pipelines.push_back({scheme, {first, first + scheme.ranks()}});
    used += needed;
  }
  if (result.pipelines.empty()) result.pipelines.push_back({{1, 1, 1}, {ranks.front()}});
  return result;
}

inline Case random_case(uint64_t seed) {
  base::Rng rng(seed, 77);
  Case result;
  result.world_size = static_cast<int>(rng.between(1, 13));
  result.gpus_per_node = static_cast<int>(rng.between(1, 5));
  result.table = model::parameter_table(random_shape(rng));
  result.strategy = random_strategy(rng, result.table.model.outline(), result.world_size);
  return result;
}

}  // namespace sluice::link
