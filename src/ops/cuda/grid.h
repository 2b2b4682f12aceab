// The shape of a kernel's launch.
#pragma once

#include <cstdint>

namespace sluice::ops::kernels {

struct Grid {
  int64_t blocks = 0;
  int threads = 0;  // of each block
};

}  // namespace sluice::ops::kernels
