#include "rl/reward_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace sluice::rl {

RewardQueue::RewardQueue(Reward& reward)
    : answers_(std::numeric_limits<size_t>::max()), thread_([this, &reward] { run(reward); }) {}

RewardQueue::~RewardQueue() {
  answers_.close();
  if (thread_.joinable()) thread_.join();
}

void RewardQueue::run(Reward& reward) {
  for (std::vector<RewardInput> batch = answers_.pop_all(); !batch.empty(); batch = answers_.pop_all()) {
    if (error_) continue;  // drops the rest
    try {
      std::ranges::move(reward.of(batch), std::back_inserter(verdicts_));
    } catch (...) {
      error_ = std::current_exception();
    }
  }
}

std::vector<Verdict> RewardQueue::finish() {
  answers_.close();
  thread_.join();
  if (error_) std::rethrow_exception(error_);
  return std::move(verdicts_);
}

}  // namespace sluice::rl
