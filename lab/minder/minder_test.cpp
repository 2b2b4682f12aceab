#include "minder/minder.h"

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace sluice::minder {
namespace {

constexpr int kRanks = 8;

std::vector<double> sample(uint64_t seed, int step, double odd) {
  std::vector<double> values;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto counter = static_cast<uint64_t>(step * kRanks + rank);
    values.push_back(1 + 0.05 * base::random_normal(seed, 3, counter) + (rank == 5 ? odd : 0));
  }
  return values;
}

std::shared_ptr<const LstmVae> learnt() {
  std::vector<float> values;
  for (int step = 0; step + 8 <= 60; ++step) {
    std::deque<std::vector<double>> window;
    for (int i = 0; i < 8; ++i) window.push_back(sample(1, step + i, 0));
    const at::Tensor windows = normalised(window);
    values.insert(values.end(), windows.const_data_ptr<float>(),
                  windows.const_data_ptr<float>() + kRanks * 8);
  }
  const at::Tensor windows =
      at::from_blob(values.data(), {static_cast<int64_t>(values.size()) / 8, 8}, at::kFloat).clone();
  return std::make_shared<const LstmVae>(windows, LstmVae::Options{});
}

TEST(LstmVae, SaysWindowsWithoutTheirNoise) {
  const auto denoiser = learnt();
  EXPECT_LT(denoiser->error(), 0.06) << "a window's own variance is about 0.05";
  std::deque<std::vector<double>> window;
  for (int i = 0; i < 8; ++i) window.push_back(sample(2, 100 + i, 0));
  const at::Tensor before = normalised(window), after = denoiser->denoised(before);
  EXPECT_LT(after.var(1).mean().item<double>(), 0.5 * before.var(1).mean().item<double>());
  EXPECT_TRUE(after.equal(denoiser->denoised(before)));
}

TEST(Minder, TellsTheMachineThatIsUnlikeTheOthers) {
  for (const bool denoise : {false, true}) {
    Minder minder({}, {denoise ? learnt() : nullptr});
    std::optional<int> told;
    for (int step = 0; step < 40; ++step) {
      const std::vector<std::vector<double>> metrics{sample(7, step, 0)};
      EXPECT_FALSE(minder.add(metrics).has_value()) << step;
    }
    for (int step = 40; step < 80; ++step) {
      const std::vector<std::vector<double>> metrics{sample(7, step, 0.8)};
      if (const auto rank = minder.add(metrics)) told = rank;
    }
    EXPECT_EQ(told, 5) << denoise;
  }
}

TEST(Minder, ScoresLeaveTheirOwnOut) {
  std::vector<float> values{0, 0, 0.1F, 0, 0, 0.1F, 1, 1};
  const auto scores = leave_one_out_scores(at::from_blob(values.data(), {4, 2}, at::kFloat));
  EXPECT_GT(scores[3], 10);
  for (int rank = 0; rank < 3; ++rank) EXPECT_LT(scores[static_cast<size_t>(rank)], 1);
}

}  // namespace
}  // namespace sluice::minder
