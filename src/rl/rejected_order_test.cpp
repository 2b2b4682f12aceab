#include "rl/rejected_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"

namespace sluice::rl {
namespace {

// Corpora of so many documents.
RejectedOrder order_of(const std::vector<size_t>& corpora, const corpus::SamplerOptions& options) {
  std::vector<std::vector<int32_t>> lengths;
  for (const size_t documents : corpora) lengths.emplace_back(documents, 10);
  std::vector<corpus::LengthSource> sources;
  for (const std::vector<int32_t>& each : lengths) sources.push_back({.lengths = each});
  return {sources, options};
}

std::vector<int64_t> epoch_of(RejectedOrder& order, int64_t epoch, int64_t documents) {
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < documents; ++i) drawn.push_back(order.at(epoch * documents + i));
  return drawn;
}

TEST(RejectedOrder, EachEpochHasAllDocumentsInAnOrderOfItsOwn) {
  for (const int64_t documents : {6, 40, 1000}) {
    RejectedOrder order = order_of({static_cast<size_t>(documents)}, {.seed = 7});
    std::vector<int64_t> as_they_are(static_cast<size_t>(documents));
    std::iota(as_they_are.begin(), as_they_are.end(), 0);
    std::set<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<int64_t> drawn = epoch_of(order, epoch, documents);
      EXPECT_NE(drawn, as_they_are) << documents << " documents, epoch " << epoch;
      orders.insert(drawn);
      std::ranges::sort(drawn);
      EXPECT_EQ(drawn, as_they_are);
    }
    EXPECT_EQ(orders.size(), 4);
  }
}

TEST(RejectedOrder, IsTheSameFromAnyPlaceOn) {
  RejectedOrder order = order_of({9}, {.seed = 3}), other = order_of({4, 5}, {.seed = 3});
  const int64_t late = order.at(31);
  for (int64_t place = 0; place < 31; ++place) static_cast<void>(other.at(place));
  EXPECT_EQ(other.at(31), late);
}

TEST(RejectedOrder, LeavesOutWhatIsHeldOutOfWantedAnswers) {
  const corpus::SamplerOptions options{.seed = 3, .validation_ppm = 300'000, .validation_seed = 5};
  RejectedOrder order = order_of({150, 150}, options);
  for (int64_t place = 0; place < 900; ++place)
    EXPECT_FALSE(corpus::is_held_out(order.at(place) % 150, options)) << place;
  EXPECT_THROW(order_of({3}, {.validation_ppm = 1'000'000}), base::InputError);
}

}  // namespace
}  // namespace sluice::rl
