// A cluster: the machines that a plan is made for, in the figures that the analytic cost model needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "strategy/strategy.h"
#include "strategy/topology.h"

namespace sluice::strategy {

// Attained speed of a link: a message of n bytes takes latency_ns + n ÷ bytes_per_ns. 1 byte/ns is 1 GB/s.
struct LinkSpeed {
  double bytes_per_ns = 0;
  double latency_ns = 0;
  bool operator==(const LinkSpeed&) const = default;
};

// A group of nodes that lie together, as those of a pod do, and the links between such groups.
struct NodeGroup {
  std::string name;
  int nodes = 1;
  LinkSpeed between;  // attained by one NIC while all NICs of a group send to other groups
  bool operator==(const NodeGroup&) const = default;
};

// Devices of one kind and the number of nodes that have them.
struct NodeKind {
  std::string name;
  int nodes = 1;
  int64_t device_memory_bytes = 0;
  double flops_per_ns = 0;
  double device_bytes_per_ns = 0;
  bool supports_float8 = false;
  bool operator==(const NodeKind&) const = default;
};

// A cluster has equal devices in equal nodes, or equal ones within each kind of node. Figures are attained,
// not those of data sheets. Links are one direction of one device; between nodes, of one network adapter
// (NIC). Neighbouring devices share a NIC evenly if a node has fewer NICs than devices.
struct Cluster {
  std::string name;
  int nodes = 1;
  int gpus_per_node = 1;  // devices of any kind
  int64_t device_memory_bytes = 0;
  double flops_per_ns = 0;         // dense 16-bit matrix products; 1 FLOP/ns is 1 GFLOP/s
  double device_bytes_per_ns = 0;  // read from its own memory
  bool supports_float8 = false;    // has matrix units for FP8
  LinkSpeed intra_node;            // between devices of a node
  LinkSpeed inter_node;            // between nodes, of one NIC
  int nics_per_node = 1;           // divides gpus_per_node
  double host_bytes_per_ns = 0;    // a device's copies to and from host memory
  int64_t host_memory_bytes = 0;   // host memory of a node
  // By size; each holds several whole groups of the kind before. Empty: inter_node joins all nodes.
  std::vector<NodeGroup> groups = {};
  // If nodes differ: their kinds, in the order of nodes. The devices' figures above are then those of the
  // fastest kind, and the links' are the slowest.
  std::vector<NodeKind> kinds = {};

  int gpus() const { return nodes * gpus_per_node; }
  Topology topology() const;
  bool operator==(const Cluster&) const = default;
};

// Presets: "local", "a100x8", "a800x8", "h100x8", "h200x8", "b200x8", "l40sx8", with `nodes` nodes. Mixed
// clusters, "2x h100x8 + 4x a800x8", give the numbers of nodes themselves. InputError for other names, which
// lists the presets, or if nodes < 1.
Cluster cluster_preset(const std::string& name, int nodes);
// Whether the name is a preset's or a mixed cluster's.
bool is_cluster_preset(const std::string& name);

// Devices of the first `ranks` ranks, which fill nodes in order, with speeds relative to the fastest kind;
// empty if all are alike. A plan may use `tenths` tenths of a device's memory.
std::vector<Device> devices_of(const Cluster& cluster, int ranks, int tenths);
std::vector<std::string> cluster_preset_names();

// Writes and reads "sluice.cluster/1". Without nics_per_node every device has its own NIC. If kinds are
// given, `nodes` and the devices' figures may be left out. InputError naming `name`, the key and the
// value.
base::Json to_json(const Cluster& cluster);
Cluster cluster_from_json(const base::Json& json, const std::string& name);

// InputError naming the first figure that no machine has. Counts, sizes and speeds must be in range, NICs
// divide the devices, and kinds agree with the cluster's nodes and its fastest device. Each group must
// consist of several whole groups of the kind before, and be joined by links that are no faster.
void validate(const Cluster& cluster);

}  // namespace sluice::strategy
