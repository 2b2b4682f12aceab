// The frozen base of a LoRA run in few bits (model/coded_weight.h), as layers compute with it.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/parameters.h"

namespace sluice::layers {

// Decodes a rank's whole flat shard of a coded bucket into the numbers of its local matrices, end to end, in
// the type of `words`. REQUIRES: dense words.
at::Tensor expanded(const model::Bucket& bucket, const model::Cut& cut, const at::Tensor& words);

// The same by ATen's operators, as on GPUs; expands about `most_blocks` blocks at a time.
namespace aten {
at::Tensor expanded(const model::Bucket& bucket, const model::Cut& cut, const at::Tensor& words,
                    int64_t most_blocks = int64_t{1} << 15);
}

}  // namespace sluice::layers
