#include "serve/fair_pool.h"

#include <utility>

namespace sluice::serve {

FairPool::FairPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

FairPool::~FairPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void FairPool::post(Turn turn, const std::string& client, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    (turn == Turn::kGoOn ? going_on_ : beginning_).add(client, std::move(work));
  }
  posted_.notify_one();
}

void FairPool::Queues::add(const std::string& client, std::function<void()> work) {
  std::deque<std::function<void()>>& own = by_client[client];
  if (own.empty()) turns.push_back(client);
  own.push_back(std::move(work));
}

std::function<void()> FairPool::Queues::take() {
  const std::string client = std::move(turns.front());
  turns.pop_front();
  const auto own = by_client.find(client);
  std::function<void()> work = std::move(own->second.front());
  own->second.pop_front();
  if (own->second.empty()) {
    by_client.erase(own);
  } else {
    turns.push_back(client);
  }
  return work;
}

// REQUIRES: one of the queues has work.
FairPool::Queues& FairPool::next_queues() {
  const bool begins = going_on_.turns.empty() || (!beginning_.turns.empty() && !began_last_);
  began_last_ = begins;
  return begins ? beginning_ : going_on_;
}

void FairPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [this] { return stopping_ || !going_on_.turns.empty() || !beginning_.turns.empty(); });
    if (stopping_) return;
    std::function<void()> work = next_queues().take();
    lock.unlock();
    work();
    work = {};
    lock.lock();
  }
}

}  // namespace sluice::serve
