// Valid ranges of a model's figures, whatever their source. They keep products of two widths, and all bytes
// of a model, inside 64 bits.
#pragma once

#include <cstdint>

#include "base/range.h"

namespace sluice::model {

struct ModelRanges {
  base::Range<int64_t> layers{1, 4096};
  base::Range<int64_t> hidden{1, int64_t{1} << 20};
  base::Range<int64_t> heads{1, int64_t{1} << 16};  // and kv_heads
  base::Range<int64_t> head_dim{2, int64_t{1} << 16};
  base::Range<int64_t> ffn_hidden{1, int64_t{1} << 24};
  base::Range<int64_t> experts{1, int64_t{1} << 16};
  base::Range<int64_t> recurrent_width{1, int64_t{1} << 12};
  base::Range<int64_t> convolution{1, 64};
  base::Range<int64_t> vocab{1, int64_t{1} << 24};
  base::Range<int64_t> parameters{1, int64_t{1} << 48};
  base::Range<double> norm_eps{0, 1};
  base::Range<double> rope_theta{1e-6, 1e15};
  base::Range<double> rope_factor{1e-6, 1e6};  // and the factors and betas of its kinds
  base::Range<double> factor{1e-6, 1e6};       // on embeddings, results of parts, logits
  base::Range<int64_t> window{1, int64_t{1} << 31};
  base::Range<int64_t> max_positions{1, int64_t{1} << 40};
};
inline constexpr ModelRanges kModelRanges;

}  // namespace sluice::model
