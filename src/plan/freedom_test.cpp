// More lanes, and lanes that share parameters, only add strategies: what is proposed must not get worse by
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cost/shipped.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "plan/proposal.h"

namespace sluice::plan {
namespace {

constexpr int64_t kContextTokens = 16'384;

std::vector<std::vector<int64_t>> batches_of(const std::string& name) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  std::ifstream file(root / "bench/data" / (name + "_lengths.txt"));
  std::vector<int64_t> lengths;
  for (int64_t length; file >> length;) lengths.push_back(std::clamp<int64_t>(length, 2, kContextTokens));
  return stratified_batches(lengths, {.tokens_per_step = 50'000, .batches = 8, .seed = 3});
}

struct Setting {
  const char* calibration;
  int ranks;
};

class Freedom : public testing::TestWithParam<Setting> {
 protected:
  // Over the sample batches.
  int64_t mean_ns(const std::vector<std::vector<int64_t>>& batches, int max_cp, int max_share) const {
    const auto& [calibration, ranks] = GetParam();
    const cost::CostModel cost(cost::shipped(calibration).options);
    const ProposalOptions options{.world_size = ranks,
                                  .context_length = kContextTokens,
                                  .sample_batches = batches,
                                  .max_strategies = 3,
                                  .max_cp = max_cp,
                                  .max_share = max_share};
    const Planner planner({.world_size = ranks,
                           .candidates = strategies_of(propose(options, cost).or_throw()),
                           .effort = Effort::kQuick},
                          cost);
    int64_t total_ns = 0;
    for (const std::vector<int64_t>& lengths : batches) {
      std::vector<strategy::Sequence> sequences;
      for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
      total_ns += planner.plan(0, sequences).estimated_ns;
    }
    return total_ns / std::ssize(batches);
  }
};

TEST_P(Freedom, NeverMakesAMeanStepWorse) {
  const auto& [calibration, ranks] = GetParam();
  for (const char* corpus : {"wikipedia", "code"}) {
    const std::vector<std::vector<int64_t>> batches = batches_of(corpus);
    int64_t before_ns = mean_ns(batches, 1, 1);
    for (int lanes = 2; lanes <= ranks; lanes *= 2) {
      for (const int share : {1, lanes}) {
        const int64_t now_ns = mean_ns(batches, lanes, share);
        EXPECT_LE(now_ns, before_ns + before_ns / 200)
            << corpus << ", " << lanes << " lanes, share " << share;
        if (share == 1) before_ns = std::min(before_ns, now_ns);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Freedom,
                         testing::Values(Setting{"a800-7b", 16}, Setting{"a800-13b", 16},
                                         Setting{"a800-32b", 32}),
                         [](const auto& info) { return std::string(info.param.calibration).substr(5); });

}  // namespace
}  // namespace sluice::plan
