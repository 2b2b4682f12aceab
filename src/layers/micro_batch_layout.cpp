#include "layers/micro_batch_layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/device.h"

namespace sluice::layers {
namespace {

MicroBatchLayout rows_of(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device) {
  SLUICE_ASSERT(!pieces.empty(), "a micro-batch without pieces");
  MicroBatchLayout layout;
  std::vector<int64_t> lengths, positions;
  int before = -1;
  for (const PieceSpan& piece : pieces) {
    if (piece.shared >= 0 && piece.shared == before) {
      lengths.back() += piece.length;
    } else {
      lengths.push_back(piece.length);
    }
    before = piece.shared;
    for (int64_t i = 0; i < piece.length; ++i) positions.push_back(piece.begin + i);
    layout.longest = std::max(layout.longest, piece.begin + piece.length);
  }
  layout.sequences = ops::packed_sequences(lengths, device);
  layout.tokens = layout.sequences.begins.back();
  layout.rows = (layout.tokens + tp - 1) / tp * tp;
  layout.position_T = row_values(positions, layout, device, 0);
  return layout;
}

}  // namespace

MicroBatchLayout micro_batch_layout(const std::vector<PieceSpan>& pieces, int tp, const at::Device& device) {
  for (const PieceSpan& piece : pieces) {
    SLUICE_ASSERT(piece.shared < 0 && piece.begin == 0, "a piece of a ring in a micro-batch without one");
  }
  return rows_of(pieces, tp, device);
}

MicroBatchLayout ring_micro_batch_layout(const RingSpans& ring, int tp, const at::Device& device) {
  MicroBatchLayout layout = rows_of(ring.lanes[static_cast<size_t>(ring.lane)], tp, device);
  layout.ring = ring_layout(ring);
  return layout;
}

at::Tensor row_values(const std::vector<int64_t>& values, const MicroBatchLayout& layout,
                      const at::Device& device, int64_t filler) {
  SLUICE_ASSERT(static_cast<int64_t>(values.size()) == layout.tokens,
                base::text(values.size(), " values for ", layout.tokens, " tokens"));
  const at::Tensor host = ops::upload_buffer(layout.rows, at::kLong, device);
  int64_t* rows = host.mutable_data_ptr<int64_t>();
  std::fill(std::copy(values.begin(), values.end(), rows), rows + layout.rows, filler);
  return ops::upload(host, device);
}

}  // namespace sluice::layers
