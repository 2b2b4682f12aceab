// Layouts for serving: requests arrive all the time, and the time between a sequence's tokens (TPOT) is
// bounded. Figures hold for the steady state at mean lengths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "inference/layouts.h"

namespace sluice::inference {

struct Demand {
  int64_t input_len = 512;             // mean tokens of a prompt
  int64_t output_len = 256;            // mean generated tokens
  int64_t tpot_ns = 50'000'000;        // at most, between two tokens of a sequence
  bool disaggregated_prefill = false;  // other devices compute the prompts' keys and values

  // Cache bytes of a finished sequence on a rank with this cache.
  int64_t sequence_bytes(const model::CacheBytes& cache) const {
    return kv_blocks_for(input_len + output_len) * kKvBlockTokens * cache.token + cache.sequence;
  }
};

// The engine steps of one output's length with `sequences` running: each step computes a token of each, and a
// new prompt for each sequence that ends.
cost::DecodeWork steady_work(const Demand& demand, int64_t sequences, int64_t window);

// The largest number of sequences, up to 2^20, for which `fits` holds; 0: it does not hold for one. REQUIRES:
// `fits` holds for all smaller numbers.
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

// Data-parallel pipelines, each with the whole model.
struct ServingLayout {
  strategy::Scheme scheme;
  int pipelines = 1;
  int64_t sequences = 0;       // running on each pipeline
  int64_t engine_step_ns = 0;  // between two tokens of a sequence
  int64_t bytes = 0;           // on the fullest rank: parameters and the cache of these sequences, finished
  double tokens_per_s() const {
    return engine_step_ns == 0
               ? 0
               : 1e9 * static_cast<double>(pipelines * sequences) / static_cast<double>(engine_step_ns);
  }
};

// A layout for each scheme that the cost model knows and that divides the ranks; schemes of several lanes for
// long sequences alone. Sorted by tokens per second. Layouts that exceed the TPOT or hold no sequence come
// last, with 0 sequences.
std::vector<ServingLayout> serving_layouts(const cost::CostModel& cost, const Demand& demand, int world_size);

}  // namespace sluice::inference
