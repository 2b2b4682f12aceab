// How fast this rank's device is, beside others'.
#pragma once

#include <c10/core/Device.h>

namespace sluice::profile {

// What a product of two square matrices takes here, in nanoseconds, over about `budget_ns`.
double product_ns(c10::Device device, double budget_ns);

}  // namespace sluice::profile
