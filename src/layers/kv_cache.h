// Cache for text generation, so that a sequence's next token is computed as one row. Attention layers keep
// keys and values of every computed token, recurrent layers one state per sequence. The scheduler
// (inference/scheduler.h) assigns cache rows and slots to sequences.
//
// R: rows of the cache, K: key heads of this TP rank, D: dimensions of a head; L: slots of sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "layers/context.h"
#include "model/program.h"

namespace sluice::layers {

// Cache of one attention layer. Latent attention keeps one narrow row of one head as both key and value.
struct CachedKeys {
  at::Tensor k_RKD;  // rotated
  at::Tensor v_RKD;
};

// Cache of one recurrent layer.
struct CachedStates {
  at::Tensor state_LHKD;  // float (double for double)
  at::Tensor last_LMC;    // input rows that its convolution still needs
};

class KvCache {
 public:
  // Allocates `rows` tokens and `texts` slots of sequences in each of these blocks (model::Kind::cache says
  // how much each needs). `like`: device and type.
  KvCache(const LayerContext& context, const model::Program& program, base::Interval blocks, int64_t rows,
          int64_t texts, const at::TensorOptions& like);

  // Fills the cache with random values as if sequences had been computed; for measurements.
  void fill_randomly() const;

  // REQUIRES for both: the program's block at `position` has such a cache.
  CachedKeys of(int64_t position) const;
  const CachedStates& states_of(int64_t position) const {
    return states_[static_cast<size_t>(position - first_block_)];
  }

 private:
  int64_t first_block_;
  std::vector<at::Tensor> both_;  // by block: [R, 2K, D], narrow rows [R, 1, W]; undefined if it is recurrent
  std::vector<CachedStates> states_;  // by block; undefined for other layers
};

}  // namespace sluice::layers
