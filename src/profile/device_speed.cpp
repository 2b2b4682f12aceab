#include "profile/device_speed.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <utility>
#include <vector>

#include "profile/timing.h"

namespace sluice::profile {

double gemm_ns(c10::Device device, double window_ns) {
  constexpr int64_t kWide = 512;
  constexpr int kWindows = 5;
  const at::Tensor x = at::ones({kWide, kWide}, at::dtype(at::kFloat).device(device));
  at::matmul(x, x);  // warm-up
  Stopwatch stopwatch(device);
  std::vector<double> means_ns;
  for (int window = 0; window < kWindows; ++window) {
    double sum_ns = 0;
    int64_t count = 0;
    for (; count == 0 || sum_ns < window_ns; ++count) {
      at::matmul(x, x);
      sum_ns += stopwatch.lap_ns();
    }
    means_ns.push_back(sum_ns / static_cast<double>(count));
  }
  return median(std::move(means_ns));
}

}  // namespace sluice::profile
