// Turns errors of the CUDA runtime into exceptions. Only *_cuda.cpp files include this.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"
#include "base/text.h"

namespace sluice::transport {

// Throws RunError "`what` failed: …" unless `status` is success.
inline void cuda_check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw base::RunError(base::text(what, " failed: ", cudaGetErrorString(status)));
}

}  // namespace sluice::transport
