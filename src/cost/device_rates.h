// What devices attain, as others measured it: data/rates/rates.json, which tools/device_rates.py fits and the
// library carries within itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategy/cluster.h"

namespace sluice::cost {

// Of an attention kernel: R·l/(l + h) FLOPs a nanosecond on sequences of l tokens.
struct AttentionRate {
  double flops_per_ns = 0;
  double half_length_tokens = 0;
};

// A kernel for heads of so many numbers. Narrower heads are padded to it.
struct AttentionKernel {
  std::string name;
  int64_t width = 0;
  AttentionRate forward, backward;
  std::string source;
};

struct DeviceRates {
  std::string device;
  double product_flops_per_ns = 0;
  double float8_speedup = 0;  // of products whose operands have 8 bits; 0: not measured
  std::string product_source;
  std::vector<AttentionKernel> attention;  // by width
  strategy::LinkSpeed collective;          // of a TP group in a node; no bandwidth: not measured
  std::string collective_source;
};

// What the host of a GPU needs, whatever the tokens.
struct HostRates {
  double layer_pass_ns = 0;  // of a pass over a layer
  double ring_step_ns = 0;   // of a step of ring attention in a layer's forward pass; twice in its backward
  std::string source;
};

const std::vector<DeviceRates>& device_rates();
const HostRates& host_rates();

// Whose kernels a cluster's devices run: its name has the device's within it, in any case ("h100x8", "our-H200"),
// or where nodes differ the name of the fastest kind has. A800 is A100 here. Those that nobody measured run A100's,
// whose kernels all later devices run too.
const DeviceRates& rates_of_devices(const strategy::Cluster& cluster);
// The preset "local", whose ranks are cores of a CPU.
bool is_cpu(const strategy::Cluster& cluster);

// The narrowest kernel that holds the width; the widest where none does. REQUIRES: kernels.
const AttentionKernel& kernel_of_width(const std::vector<AttentionKernel>& kernels, int64_t width);

}  // namespace sluice::cost
