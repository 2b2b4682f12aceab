// Measures durations: a stopwatch that waits for devices, and statistics that resist disturbances.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

namespace sluice::profile {

// Waits until everything issued on the device is done; nothing to do on a CPU.
void synchronize(c10::Device device);

// Time since construction or the last lap, the device's work included.
class Stopwatch {
 public:
  explicit Stopwatch(c10::Device device);
  // Nanoseconds since the last lap; a new lap begins.
  double lap_ns();

 private:
  c10::Device device_;
  int64_t begin_ns_;
};

// The middle value, or the mean of the middle two. REQUIRES: values is not empty.
double median(std::vector<double> values);

// The value that a quarter of `values` don't exceed: a duration with little disturbance.
// REQUIRES: values is not empty.
double lower_quartile(std::vector<double> values);

}  // namespace sluice::profile
