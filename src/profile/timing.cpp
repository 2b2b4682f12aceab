#include "profile/timing.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace sluice::profile {

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

Stopwatch::Stopwatch(c10::Device device) : device_(device), begin_ns_(0) { lap_ns(); }

double Stopwatch::lap_ns() {
  synchronize(device_);
  const int64_t end_ns = now_ns();
  const int64_t lap = end_ns - begin_ns_;
  begin_ns_ = end_ns;
  return static_cast<double>(lap);
}

double median(std::vector<double> values) {
  SLUICE_ASSERT(!values.empty(), "the median of nothing");
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double lower_quartile(std::vector<double> values) {
  SLUICE_ASSERT(!values.empty(), "a quartile of nothing");
  std::ranges::sort(values);
  return values[(values.size() - 1) / 4];
}

}  // namespace sluice::profile
