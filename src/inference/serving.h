// What a cluster says to people who wait: texts come all the time, each with a prompt, and their tokens
// follow each other in no more than so long. Figures are of the steady state, of means.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "inference/layouts.h"

namespace sluice::inference {

struct Demand {
  int64_t input_len = 512;             // tokens, in the mean
  int64_t output_len = 256;            // likewise
  int64_t tpot_ns = 50'000'000;        // tokens of a text, at most
  bool disaggregated_prefill = false;  // other devices compute their keys and values

  // What a text takes of a rank in the end, that keeps so much of it.
  int64_t sequence_bytes(const model::CacheBytes& cache) const {
    return kv_blocks_for(input_len + output_len) * kKvBlockTokens * cache.token + cache.sequence;
  }
};

// Passes in which so many texts are under way, one after a text's other, and each that ends makes room for
// one more: as many as a response has tokens.
cost::DecodeWork steady_work(const Demand& demand, int64_t texts, int64_t window);

// The most texts for which `fits` holds, where it holds for all fewer ones, up to 2^20; 0: not for one.
template <typename Fits>
int64_t max_sequences(Fits fits) {
  int64_t good = 0, bad = int64_t{1} << 20;
  while (bad - good > 1) {
    const int64_t middle = good == 0 ? 1 : std::min(bad - 1, good + (bad - good) / 2);
    if (fits(middle)) {
      good = middle;
    } else if (good == 0) {
      return 0;
    } else {
      bad = middle;
    }
  }
  return good;
}

// Pipelines side by side that have the whole model each.
struct ServingLayout {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t sequences = 0;       // under way on each
  int64_t engine_step_ns = 0;  // between a text's tokens
  int64_t bytes = 0;  // of the fullest rank: parameters, and keys and values of these texts in the end
  double tokens_per_s() const {
    return engine_step_ns == 0
               ? 0
               : 1e9 * static_cast<double>(pipelines * sequences) / static_cast<double>(engine_step_ns);
  }
};

// Of every scheme that the cost model knows and that divides the ranks, of several lanes for long texts
// alone; the most tokens a second first, those that can't keep the time, or hold no text, last and without
// texts.
std::vector<ServingLayout> serving_layouts(const cost::CostModel& cost, const Demand& demand, int world_size);

}  // namespace sluice::inference
