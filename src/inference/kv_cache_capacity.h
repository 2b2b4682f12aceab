// How much text a cache holds beside a model that stages and TP ranks have between them.
#pragma once

#include <cstdint>

#include "model/kind.h"
#include "model/program.h"

namespace sluice::inference {

// A model cut by TP and stages, as ranks that say texts hold it; of lanes each holds it, and some of the
// pages.
struct ModelSharding {
  const model::Program& program;
  int tp = 1;
  int stages = 1;
  int64_t element_bytes = 4;  // of what is kept
  int lanes = 1;
};

// What a stage's rank keeps of a token, and of a text.
model::CacheBytes cache_of(const ModelSharding& cut, int stage);
// How many pages so many bytes of each rank hold beside what each of so many texts takes: the fullest
// stage's, of all lanes. Of a model without attention pages take nothing, and any number will do.
int64_t kv_blocks_in(const ModelSharding& cut, double bytes, int64_t most_texts);

}  // namespace sluice::inference
