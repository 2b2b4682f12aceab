// Rewards on a thread of their own, beside whoever says the answers.
#pragma once

#include <exception>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "rl/reward.h"

namespace sluice::rl {

class RewardQueue {
 public:
  // Nothing else uses `reward` while this lives; it outlives it.
  explicit RewardQueue(Reward& reward);
  ~RewardQueue();
  RewardQueue(const RewardQueue&) = delete;
  RewardQueue& operator=(const RewardQueue&) = delete;

  // Returns at once. Answers that wait are rewarded together.
  void add(RewardInput answer) { answers_.push(std::move(answer)); }
  // Of all answers, in the order in which they were added. Throws what a reward threw. REQUIRES: once, and
  // nothing is added behind it.
  std::vector<Verdict> finish();

 private:
  void run(Reward& reward);

  base::BoundedQueue<RewardInput> answers_;
  std::vector<Verdict> verdicts_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace sluice::rl
