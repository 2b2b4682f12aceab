// A thread pool for many clients, round robin: one work item of each client in turn, however many each has
// queued.
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
  // Work that has not begun is thrown away.
  ~FairPool();

  // kGoOn continues an answer, kBegin begins one. The two kinds take turns, so that a client's first request
  // does not wait for all answers of a crowd, nor these for a crowd's requests.
  enum class Turn : uint8_t { kGoOn, kBegin };
  // Thread-safe. `work` must throw nothing.
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
