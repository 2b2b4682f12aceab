#include "profile/device_pace.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include "profile/timing.h"

namespace sluice::profile {

// The mean: a device that others use as well, or that is held to a share of its time, stands still now and then.
double product_ns(c10::Device device, double budget_ns) {
  constexpr int64_t kWide = 512;
  constexpr int64_t kLeast = 5;
  const at::Tensor x = at::ones({kWide, kWide}, at::dtype(at::kFloat).device(device));
  at::matmul(x, x);  // warms up
  Stopwatch stopwatch(device);
  double sum_ns = 0;
  int64_t count = 0;
  for (; sum_ns < budget_ns || count < kLeast; ++count) {
    at::matmul(x, x);
    sum_ns += stopwatch.lap_ns();
  }
  return sum_ns / static_cast<double>(count);
}

}  // namespace sluice::profile
