// Rates that devices attain, as others measured them: data/rates/rates.json, which tools/device_rates.py fits
// and which is embedded in the library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategy/cluster.h"

namespace sluice::cost {

// The rate of an attention kernel: R·l/(l + h) FLOPs a nanosecond on sequences of l tokens.
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
  double float8_speedup = 0;  // speedup of products with 8-bit operands; 0: not measured
  std::string product_source;
  std::vector<AttentionKernel> attention;  // by width
  strategy::LinkSpeed collective;          // in a TP group within a node; no bandwidth: not measured
  std::string collective_source;
};

// The time that a GPU's host needs, whatever the tokens.
struct HostRates {
  double layer_pass_ns = 0;  // a pass over a layer
  double ring_step_ns = 0;   // a ring attention step in a layer's forward pass; a backward's takes twice that
  std::string source;
};

const std::vector<DeviceRates>& device_rates();
const HostRates& host_rates();

// The device whose name occurs in the cluster's name, in any case ("h100x8", "our-H200"), or, if nodes
// differ, in the name of their fastest kind. A800 is A100 here. Other devices get the rates of A100, whose
// kernels all later devices run, too.
const DeviceRates& rates_of_devices(const strategy::Cluster& cluster);
// Whether it is the preset "local", whose ranks are CPU cores.
bool is_cpu(const strategy::Cluster& cluster);

// The narrowest kernel that holds the width; the widest if none does. REQUIRES: kernels is not empty.
const AttentionKernel& kernel_of_width(const std::vector<AttentionKernel>& kernels, int64_t width);

}  // namespace sluice::cost
