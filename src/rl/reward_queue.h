// Rewards on a thread of their own, beside generation.
#pragma once

#include <exception>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "rl/reward.h"

namespace sluice::rl {

class RewardQueue {
 public:
  // REQUIRES: `reward` outlives the queue, and nothing else uses it meanwhile.
  explicit RewardQueue(Reward& reward);
  ~RewardQueue();
  RewardQueue(const RewardQueue&) = delete;
  RewardQueue& operator=(const RewardQueue&) = delete;

  // Returns at once. Answers that wait are rewarded together.
  void add(RewardInput answer) { answers_.push(std::move(answer)); }
  // The verdicts on all answers, in the order in which they were added. Throws what a reward threw. REQUIRES:
  // called once, and nothing is added after it.
  std::vector<Verdict> finish();

 private:
  void run(Reward& reward);

  base::BoundedQueue<RewardInput> answers_;
  std::vector<Verdict> verdicts_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace sluice::rl
