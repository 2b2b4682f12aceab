#include "layers/micro_batch_layout.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::layers {

MicroBatchLayout micro_batch_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device) {
  SLUICE_ASSERT(!pieces.empty(), "a micro-batch without pieces");
  MicroBatchLayout layout;
  std::vector<int64_t> lengths, positions;
  for (const PieceSpan& piece : pieces) {
    if (piece.begin != 0) {
      throw base::InputError(
          base::text("[layers] a piece begins at token ", piece.begin,
                     " of its sequence, but rings cannot run yet: use schemes with cp = 1"));
    }
    lengths.push_back(piece.length);
    for (int64_t i = 0; i < piece.length; ++i) positions.push_back(piece.begin + i);
    layout.longest = std::max(layout.longest, piece.begin + piece.length);
  }
  layout.sequences = ops::packed_sequences(lengths, device);
  layout.tokens = layout.sequences.begins.back();
  layout.rows = (layout.tokens + tp - 1) / tp * tp;
  layout.position_T = row_values(positions, layout, device, 0);
  return layout;
}

at::Tensor row_values(const std::vector<int64_t>& values, const MicroBatchLayout& layout,
                      const at::Device& device, int64_t filler) {
  SLUICE_ASSERT(static_cast<int64_t>(values.size()) == layout.tokens,
                base::text(values.size(), " values for ", layout.tokens, " tokens"));
  at::Tensor host = at::empty({layout.rows}, at::TensorOptions().dtype(at::kLong));
  int64_t* rows = host.mutable_data_ptr<int64_t>();
  std::fill(std::copy(values.begin(), values.end(), rows), rows + layout.rows, filler);
  return host.to(device);
}

}  // namespace sluice::layers
