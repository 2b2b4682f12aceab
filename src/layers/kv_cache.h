// What stays of blocks while text is generated, so that a text's next token is one row: keys and values of
// every token that has gone through them, of recurrent ones each text's state. Who has which rows and slots
// is somebody else's to say (inference/scheduler.h).
//
// R: rows of the cache, K: key heads of this TP rank, D: dimensions of a head; L: slots of texts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/interval.h"
#include "layers/context.h"
#include "model/program.h"

namespace sluice::layers {

// Of one block. Of latent attention keys and values are one narrow row of one head, both the same.
struct CachedKeys {
  at::Tensor k_RKD;  // rotated
  at::Tensor v_RKD;
};

// Of one recurrent block.
struct CachedStates {
  at::Tensor state_LHKD;  // in float (double of double)
  at::Tensor last_LMC;    // rows that its convolution still sees
};

class KvCache {
 public:
  // Room for so many tokens, and so many texts, in each of these blocks (model::Kind::cache says what they
  // take). `like`: device and type.
  KvCache(const LayerContext& context, const model::Program& program, base::Interval blocks, int64_t rows,
          int64_t texts, const at::TensorOptions& like);

  // As if texts had gone through: of measurements.
  void fill_randomly() const;

  // REQUIRES of both: the position in the program of a block that has such.
  CachedKeys of(int64_t position) const;
  const CachedStates& states_of(int64_t position) const {
    return states_[static_cast<size_t>(position - first_block_)];
  }

 private:
  int64_t first_block_;
  std::vector<at::Tensor> both_;  // by block: [R, 2K, D], narrow rows [R, 1, W]; undefined of recurrent ones
  std::vector<CachedStates> states_;  // by block; undefined of others
};

}  // namespace sluice::layers
