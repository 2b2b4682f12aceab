// The number of tokens that a KV cache holds beside a model that is cut by TP and stages.
#pragma once

#include <cstdint>

#include "model/kind.h"
#include "model/program.h"

namespace sluice::inference {

// A model cut by TP and stages for generation. Each lane holds the whole cut and a part of the KV blocks.
struct ModelSharding {
  const model::Program& program;
  int tp = 1;
  int stages = 1;
  int64_t element_bytes = 4;  // for keys and values
  int lanes = 1;
};

// Bytes that a stage's rank caches for each token, and for each sequence.
model::CacheBytes cache_of(const ModelSharding& cut, int stage);
// The number of KV blocks, over all lanes, for which `bytes` of each rank suffice beside the states of
// `max_num_seqs` sequences; the stage with the largest cache decides. Blocks of a model without attention
// take no memory: any number fits.
int64_t kv_blocks_in(const ModelSharding& cut, double bytes, int64_t max_num_seqs);

}  // namespace sluice::inference
