// A thread pool for many clients, round robin: clients get
// one work item each in turn, however many they have queued.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sluice::serve {

class FairPool {
 public:
  explicit FairPool(int threads);
  // Discards work that has not begun.
  ~FairPool();

  // kGoOn continues an answer, kBegin begins one. The kinds alternate. So a client's first request
  // does not wait for all answers of a crowd, and these do not wait for a crowd's requests.
  enum class Turn : uint8_t { kGoOn, kBegin };
  // Thread-safe. `work` must not throw.
  void post(Turn turn, const std::string& client, std::function<void()> work);

 private:
  // A queue for each client, and the clients with work in the order of their turns.
  struct Queues {
    std::map<std::string, std::deque<std::function<void()>>> by_client;
    std::deque<std::string> turns;
    void add(const std::string& client, std::function<void()> work);
    std::function<void()> take();
  };
  void run();
  Queues& next_queues();

  std::mutex mutex_;
  std::condition_variable posted_;
  Queues going_on_, beginning_;
  bool began_last_ = false;  // the last work taken began an answer
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::serve
