// What pull and push do to GPU memory besides the exchange: many small copies and sums, each list in one
// launch. Raw pointers and a stream; no libtorch. Built with CUDA only.
#pragma once

#include <cstdint>

#include "ops/kernels.h"

namespace sluice::runtime {

// No job is longer, so that a launch's blocks have about as much to do.
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

// All lists lie in GPU memory and stay as they are until the stream has passed. Jobs of a launch must not
// overlap each other. Return what the launch returned; nothing to do is success.
ops::kernels::Status launch_copies(const CopyJob* jobs, int64_t count, ops::kernels::Stream stream);
ops::kernels::Status launch_sums(const SumJob* jobs, int64_t count, const float* const* sources,
                                 ops::kernels::Stream stream);
ops::kernels::Status launch_sums(const SumJob* jobs, int64_t count, const double* const* sources,
                                 ops::kernels::Stream stream);

}  // namespace sluice::runtime
