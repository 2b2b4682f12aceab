// What data sheets promise of devices: the peak that model FLOPs utilisation (MFU) is a share of.
#pragma once

#include <optional>
#include <string_view>

#include "strategy/cluster.h"

namespace sluice::strategy {

// Dense products of 16-bit floats in FLOPs a nanosecond, by a GPU's name as its driver or a cluster gives it
// ("NVIDIA H100 80GB HBM3", "h100x8"); none: the device is not in the table, as CPUs are not.
std::optional<double> peak_flops_per_ns(std::string_view device);

// Of the first `devices` of a cluster, all together; none: some of them is not in the table.
std::optional<double> peak_flops_per_ns(const Cluster& cluster, int devices);

}  // namespace sluice::strategy
