#include "profile/device_pace.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <vector>

#include "profile/timing.h"

namespace sluice::profile {

double product_ns(c10::Device device, double budget_ns) {
  constexpr int64_t kWide = 512;
  constexpr size_t kLeast = 5;
  const at::Tensor x = at::ones({kWide, kWide}, at::dtype(at::kFloat).device(device));
  at::matmul(x, x);  // warms up
  std::vector<double> times_ns;
  double sum_ns = 0;
  while (sum_ns < budget_ns || times_ns.size() < kLeast) {
    Stopwatch stopwatch(device);
    at::matmul(x, x);
    times_ns.push_back(stopwatch.lap_ns());
    sum_ns += times_ns.back();
  }
  return median(times_ns);
}

}  // namespace sluice::profile
