// One request for a head's numbers, until all its texts have theirs. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace sluice::serve {

class PendingTexts {
 public:
  // `done` is called once, on the engine's thread, when all texts have their numbers or the request has
  // failed, and must not take long.
  PendingTexts(std::vector<std::vector<int32_t>> texts, std::function<void()> done);

  const std::vector<std::vector<int32_t>>& texts() const { return texts_; }

  // The client's side. True: `numbers` are those of all texts. Throws what the request failed with.
  bool read(std::vector<std::vector<float>>& numbers);
  void abort() { aborted_ = true; }  // nobody waits any more

  // The engine's side.
  bool aborted() const { return aborted_; }
  // True: it was the last text.
  bool publish(size_t text, const std::vector<double>& numbers);
  void fail(std::exception_ptr fault);
  // Forgets all numbers.
  void begin_anew();

 private:
  const std::vector<std::vector<int32_t>> texts_;
  const std::function<void()> done_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::vector<std::vector<float>> numbers_;
  size_t known_ = 0;  // texts
  std::exception_ptr fault_;
};

}  // namespace sluice::serve
