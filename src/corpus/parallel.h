// A loop over independent items on a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::corpus {

// Calls body(i) once for every i in [0, count), on up to `threads` threads (0: one a core). Rethrows the
// first exception after all threads have ended.
template <typename Body>
void parallel_for(size_t count, int threads, const Body& body) {
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::thread::hardware_concurrency();
  std::vector<std::jthread> helpers;  // joined even if the system refuses to start another one
  for (size_t i = 1; i < std::min(wanted, count); ++i) helpers.emplace_back(work);
  work();
  for (std::jthread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace sluice::corpus
