// Small copies and sums of pull and push, as lists that a device executes in one launch each. Raw pointers;
// no libtorch.
#pragma once

#include <cstdint>

namespace sluice::runtime {

// No job is longer, so that the blocks of a launch have about equal work.
inline constexpr int64_t kJobBytes = int64_t{1} << 16;

struct CopyJob {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;  // even
};

// to[i] = ((source 0 [i] + source 1 [i]) + source 2 [i]) + …; `to` may be one of the sources.
struct SumJob {
  void* to = nullptr;
  int64_t elements = 0;
  int64_t offset = 0;        // elements to skip in every source
  int32_t first_source = 0;  // in the launch's list of sources
  int32_t sources = 0;
};

}  // namespace sluice::runtime
