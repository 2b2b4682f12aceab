// CPU time of the calling thread: time that other programs take from it does not count.
#pragma once

#include <cstdint>
#include <ctime>

namespace sluice::base {

inline int64_t thread_time_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace sluice::base
