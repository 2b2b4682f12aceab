// One request for a head's numbers, until all of its texts have them. Thread-safe.
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
  // `done` is called once, on the engine's thread, when all texts have
  // their numbers or the request has failed. It must return quickly.
  PendingTexts(std::vector<std::vector<int32_t>> texts, std::function<void()> done);

  const std::vector<std::vector<int32_t>>& texts() const { return texts_; }

  // The client's side. True: `numbers` has all texts' numbers. Throws the fault if the request failed.
  bool read(std::vector<std::vector<float>>& numbers);
  void abort() { aborted_ = true; }  // the client has left

  // The engine's side.
  bool aborted() const { return aborted_; }
  // True: this was the last text.
  bool publish(size_t text, const std::vector<double>& numbers);
  void fail(std::exception_ptr fault);
  // Clears all numbers.
  void begin_anew();

 private:
  const std::vector<std::vector<int32_t>> texts_;
  const std::function<void()> done_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::vector<std::vector<float>> numbers_;
  size_t known_ = 0;  // texts with numbers
  std::exception_ptr fault_;
};

}  // namespace sluice::serve
