// Keys and values that stay while text is generated: those of every token that has gone through the blocks,
// so that the next one is one row. Who has which rows of it is somebody else's to say (generate/pages.h).
//
// R: rows of the cache, K: key heads of this TP rank, D: dimensions of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "layers/context.h"
#include "model/program.h"

namespace sluice::layers {

// Of one block.
struct CachedKeys {
  at::Tensor k_RKD;  // rotated
  at::Tensor v_RKD;
};

class KeyCache {
 public:
  // Room for so many tokens in each block. `like`: device and type.
  KeyCache(const LayerContext& context, const model::Program& program, int64_t rows,
           const at::TensorOptions& like);

  // REQUIRES: a block's position in the program.
  CachedKeys of(int64_t position) const;

  // What a token takes in all blocks.
  static int64_t bytes_per_token(const LayerContext& context, const model::Program& program,
                                 int64_t element_bytes);

 private:
  int64_t first_block_;
  std::vector<at::Tensor> both_;  // by block: [R, 2K, D]
};

}  // namespace sluice::layers
