#include "ops/recurrence_chunks.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "ops/device.h"

namespace sluice::ops {
namespace {

// The cheapest chunk size. Cost: one unit per place, and a constant per chunk for its state's update. At most
// a quarter more places than rows may result, as model/recurrent_part.cpp assumes.
int64_t best_chunk(const std::vector<int64_t>& lengths) {
  constexpr int64_t kSizes[] = {kUsualChunk, 32, 16, 8, 4, 2, 1};
  constexpr int64_t kStateRows = 48;
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  int64_t best = 0, least = 0;
  for (const int64_t size : kSizes) {
    int64_t chunks = 0;
    for (const int64_t length : lengths) chunks += (length + size - 1) / size;
    const int64_t cost = chunks * (size + kStateRows);
    if (4 * chunks * size > 5 * rows || (best != 0 && cost >= least)) continue;
    best = size;
    least = cost;
  }
  return best;
}

}  // namespace

RecurrenceChunks recurrence_chunks(const std::vector<int64_t>& lengths, int64_t rows,
                                   const at::Device& device, int64_t chunk) {
  SLUICE_ASSERT(!lengths.empty(), "a recurrence over no pieces");
  RecurrenceChunks chunks;
  chunks.chunk = chunk > 0 ? chunk : best_chunk(lengths);
  chunks.rows = rows;
  const auto count = [&](int64_t piece) {
    return (lengths[static_cast<size_t>(piece)] + chunks.chunk - 1) / chunks.chunk;
  };
  std::vector<int64_t> begins{0}, order(lengths.size());
  for (const int64_t length : lengths) begins.push_back(begins.back() + length);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), count);
  std::vector<int64_t> row_of_place, place_of_row(static_cast<size_t>(rows), -1),
      state_of_piece(order.size());
  for (size_t state = 0; state < order.size(); ++state)
    state_of_piece[static_cast<size_t>(order[state])] = static_cast<int64_t>(state);
  int64_t made = 0;
  for (int64_t level = 0; level < count(order.front()); ++level) {
    const int64_t first = made;
    for (const int64_t piece : order) {
      if (count(piece) <= level) break;
      const int64_t begin = begins[static_cast<size_t>(piece)] + level * chunks.chunk;
      for (int64_t place = 0; place < chunks.chunk; ++place) {
        const bool there = begin + place < begins[static_cast<size_t>(piece) + 1];
        if (there) place_of_row[static_cast<size_t>(begin + place)] = made * chunks.chunk + place;
        row_of_place.push_back(there ? begin + place : rows);
      }
      ++made;
    }
    chunks.levels.push_back({first, made});
  }
  std::ranges::replace(place_of_row, -1, made * chunks.chunk);
  std::vector<int64_t> level_begins{0};
  for (const base::Interval& level : chunks.levels) level_begins.push_back(level.end);
  chunks.level_begins_L1 = to_device(level_begins, device);
  chunks.row_M = to_device(row_of_place, device);
  chunks.place_T = to_device(place_of_row, device);
  chunks.piece_of_state_P = to_device(order, device);
  chunks.state_of_piece_P = to_device(state_of_piece, device);
  return chunks;
}

}  // namespace sluice::ops
