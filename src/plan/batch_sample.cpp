#include "plan/batch_sample.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/permutation.h"
#include "base/rng.h"
#include "base/units.h"

namespace sluice::plan {
namespace {

constexpr int kMostPerStratum = 16;

// A drawn batch: its sort keys and its place in the drawing.
struct Drawn {
  int64_t longest = 0;
  __int128 squares = 0;
  uint64_t first = 0;  // place of its first sequence in the order of all epochs
  size_t sequences = 0;
};

// Every sequence of every epoch in order.
class Order {
 public:
  Order(std::span<const int64_t> lengths, uint64_t seed) : lengths_(lengths), seed_(seed) {}

  int64_t length_at(uint64_t place) {
    const uint64_t epoch = place / lengths_.size();
    if (epoch != epoch_) {
      permutation_ = base::Permutation(lengths_.size(), seed_, epoch);
      epoch_ = epoch;
    }
    return lengths_[permutation_.at(place % lengths_.size())];
  }

 private:
  std::span<const int64_t> lengths_;
  uint64_t seed_;
  uint64_t epoch_ = 0;
  base::Permutation permutation_{lengths_.size(), seed_, 0};
};

std::vector<Drawn> draw(Order& order, const BatchSampleOptions& options, int count) {
  std::vector<Drawn> drawn;
  uint64_t place = 0;
  int64_t length = order.length_at(place);
  for (int i = 0; i < count; ++i) {
    Drawn batch{.first = place};
    int64_t tokens = 0;
    do {
      tokens += length;
      batch.longest = std::max(batch.longest, length);
      batch.squares += __int128{length} * length;
      ++batch.sequences;
      length = order.length_at(++place);
    } while (tokens + length <= options.tokens_per_step);
    drawn.push_back(batch);
  }
  return drawn;
}

// The index in a stratum of `count`. Multiples of the golden ratio reach
// every part of [0, 1) equally often, and never the same part twice in a row.
size_t rank(size_t stratum, size_t count) {
  const auto part = static_cast<uint32_t>((2 * stratum + 1) * 0x4F1BBCDC);
  return static_cast<size_t>(uint64_t{part} * count >> std::numeric_limits<uint32_t>::digits);
}

}  // namespace

std::vector<std::vector<int64_t>> stratified_batches(std::span<const int64_t> lengths,
                                                     const BatchSampleOptions& options) {
  SLUICE_ASSERT(!lengths.empty() && options.batches >= 1 && options.tokens_per_step >= 1, "nothing to draw");
  const int64_t affordable =
      int64_t{options.drawn_tokens_millions} * base::kMicro / options.tokens_per_step / options.batches;
  const auto per_stratum = static_cast<size_t>(std::clamp<int64_t>(affordable, 1, kMostPerStratum));

  Order order(lengths, options.seed);
  std::vector<Drawn> drawn = draw(order, options, options.batches * static_cast<int>(per_stratum));
  std::stable_sort(drawn.begin(), drawn.end(),
                   [](const Drawn& a, const Drawn& b) { return a.longest < b.longest; });
  std::vector<std::vector<int64_t>> batches;
  for (auto begin = drawn.begin(); begin != drawn.end(); begin += static_cast<std::ptrdiff_t>(per_stratum)) {
    const auto end = begin + static_cast<std::ptrdiff_t>(per_stratum);
    std::stable_sort(begin, end, [](const Drawn& a, const Drawn& b) { return a.squares < b.squares; });
    const Drawn& taken = begin[static_cast<std::ptrdiff_t>(rank(batches.size(), per_stratum))];
    std::vector<int64_t>& batch = batches.emplace_back();
    for (size_t i = 0; i < taken.sequences; ++i) batch.push_back(order.length_at(taken.first + i));
  }
  return batches;
}

std::vector<size_t> spread_within(const std::vector<std::vector<int64_t>>& batches, int64_t most_tokens,
                                  size_t most) {
  int64_t tokens = 0;
  for (const std::vector<int64_t>& lengths : batches)
    tokens = std::accumulate(lengths.begin(), lengths.end(), tokens);
  const size_t stride = std::min(static_cast<size_t>(tokens / most_tokens) + 1, batches.size());
  std::vector<size_t> few;
  for (size_t b = stride / 2; b < batches.size(); b += stride) few.push_back(b);
  std::vector<size_t> places;
  for (const size_t place : spread(few.size(), most)) places.push_back(few[place]);
  return places;
}

std::vector<std::vector<int64_t>> few_batches(const std::vector<std::vector<int64_t>>& batches,
                                              int64_t most_tokens) {
  std::vector<std::vector<int64_t>> few;
  for (const size_t batch : spread_within(batches, most_tokens, batches.size())) few.push_back(batches[batch]);
  return few;
}

std::vector<size_t> spread(size_t size, size_t most) {
  const size_t count = std::min(size, most);
  std::vector<size_t> places;
  for (size_t i = 0; i < count; ++i) places.push_back((2 * i + 1) * size / (2 * count));
  return places;
}

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths)
    sequences.push_back({.document = std::ssize(sequences), .length_tokens = length});
  return sequences;
}

}  // namespace sluice::plan
