// How fast this rank's device is, beside others'.
#pragma once

#include <c10/core/Device.h>

namespace sluice::profile {

// What a product of two square matrices takes here, in nanoseconds: the median of five means, each over about
// `window_ns`. A device that others use as well, or that is held to a share of its time, stands still now and
// then, which a mean counts in; what disturbs it once should not.
double gemm_ns(c10::Device device, double window_ns);

}  // namespace sluice::profile
