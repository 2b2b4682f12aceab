// GPU kernels of pull and push besides the exchange: many small copies and sums, each list in one launch. Raw
// pointers and a stream; no libtorch. Built with CUDA only.
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "runtime/link_jobs.h"

namespace sluice::runtime {

// All lists lie in GPU memory and stay as they are until the stream has passed the launch. Jobs of a launch
// must not overlap each other. Return the launch's status; an empty list is success.
ops::kernels::Status launch_copies(const CopyJob* jobs, int64_t count, ops::kernels::Stream stream);
ops::kernels::Status launch_sums(const SumJob* jobs, int64_t count, const float* const* sources,
                                 ops::kernels::Stream stream);
ops::kernels::Status launch_sums(const SumJob* jobs, int64_t count, const double* const* sources,
                                 ops::kernels::Stream stream);

}  // namespace sluice::runtime
