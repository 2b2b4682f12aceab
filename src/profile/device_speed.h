// Measures the speed of this rank's device, for comparison with other ranks'.
#pragma once

#include <c10/core/Device.h>

namespace sluice::profile {

// Nanoseconds of a product of two square matrices: the median of five means, each over about `window_ns`. A
// device that is shared or throttled pauses now and then; means include these pauses. The median excludes a
// single disturbance.
double gemm_ns(c10::Device device, double window_ns);

}  // namespace sluice::profile
