// Peak speeds from data sheets: the denominator of model FLOPs utilisation (MFU).
#pragma once

#include <optional>
#include <string_view>

#include "strategy/cluster.h"

namespace sluice::strategy {

// Peak of dense 16-bit products, in FLOPs per nanosecond. `device` is a GPU's name as its driver or a cluster
// gives it ("NVIDIA H100 80GB HBM3", "h100x8"). None: it is not in the table, as CPUs are not.
std::optional<double> peak_flops_per_ns(std::string_view device);

// The sum over the first `devices` devices of a cluster; none: one of them is not in the table.
std::optional<double> peak_flops_per_ns(const Cluster& cluster, int devices);

}  // namespace sluice::strategy
