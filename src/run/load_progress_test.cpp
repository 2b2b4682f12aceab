#include "run/load_progress.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/test_outline.h"

namespace sluice::run {
namespace {

TEST(LoadProgress, ShowsBytesOfAllBytes) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(bytes_loaded(kGib, 4 * kGib), "1.00 GiB of 4.00 GiB (25 %)");
  EXPECT_EQ(bytes_loaded(5 * kGib, 4 * kGib), "4.00 GiB of 4.00 GiB (100 %)")
      << "a coded matrix is read by all its owners";
  EXPECT_EQ(bytes_loaded(0, 0), "0 B of 0 B (100 %)");
}

TEST(LoadProgress, EndsAtAllThatTheRankOwns) {
  const model::ParameterTable table = model::parameter_table(model::sliced_outline(3));
  for (const int rank : {0, 2}) {
    runtime::ParameterStore store(table, {.rank = rank, .world_size = 3});
    survive::Activity activity;
    const auto loading = activity.own("loading");
    LoadProgress progress(activity, store);
    std::vector<std::string> told;
    runtime::load_masters(store, progress.counted([&](int bucket, base::Interval interval, float* values) {
      for (int64_t i = 0; i < interval.size(); ++i) values[i] = static_cast<float>(bucket);
      told.push_back(activity.now().how_far);
    }));
    EXPECT_EQ(told.front(), "") << "nothing is read yet";
    EXPECT_NE(told.back(), told.front());
    EXPECT_TRUE(activity.now().how_far.ends_with("(100 %)")) << activity.now().how_far;
    EXPECT_EQ(store.owner(1).master[0].item<float>(), 1) << "the source fills the store as before";
  }
}

}  // namespace
}  // namespace sluice::run
