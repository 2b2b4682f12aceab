#include "rl/reward_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "base/error.h"

namespace sluice::rl {
namespace {

// The response as a number; throws if it is empty.
class Spoken final : public Reward {
 public:
  std::vector<Verdict> of(std::span<const RewardInput> answers) override {
    std::vector<Verdict> rewards;
    for (const RewardInput& answer : answers) {
      if (answer.response.empty()) throw base::RunError("nothing was said");
      rewards.push_back({std::stod(answer.response)});
    }
    ++batches;
    return rewards;
  }
  std::atomic<int> batches = 0;
};

TEST(RewardQueue, RewardsInTheOrderOfAnswers) {
  for (const int count : {0, 1, 1000}) {
    Spoken reward;
    RewardQueue queue(reward);
    for (int i = 0; i < count; ++i) queue.add({"", std::to_string(i), ""});
    std::vector<Verdict> expected;
    for (int i = 0; i < count; ++i) expected.push_back({static_cast<double>(i)});
    EXPECT_EQ(queue.finish(), expected);
    EXPECT_LE(reward.batches, count);
  }
}

TEST(RewardQueue, AFailureIsToldAtTheEnd) {
  Spoken reward;
  RewardQueue queue(reward);
  for (const char* said : {"1", "", "2"}) queue.add({"", said, ""});
  EXPECT_THROW(queue.finish(), base::RunError);
}

TEST(RewardQueue, MayBeLeftUnfinished) {
  Spoken reward;
  RewardQueue queue(reward);
  queue.add({"", "1", ""});
}

}  // namespace
}  // namespace sluice::rl
