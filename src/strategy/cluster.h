// A cluster: the machines that a plan is made for, in the figures that the analytic cost model needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "strategy/strategy.h"
#include "strategy/topology.h"

namespace sluice::strategy {

// What a link attains: a message of n bytes takes latency_ns + n ÷ bytes_per_ns. 1 byte/ns is 1 GB/s.
struct LinkSpeed {
  double bytes_per_ns = 0;
  double latency_ns = 0;
  bool operator==(const LinkSpeed&) const = default;
};

// Nodes that lie together, as those of a pod do, and what joins such groups.
struct NodeGroup {
  std::string name;
  int nodes = 1;
  LinkSpeed between;  // of one NIC while all of a group's send to other groups
  bool operator==(const NodeGroup&) const = default;
};

// Of some nodes of a cluster, the devices.
struct NodeKind {
  std::string name;
  int nodes = 1;
  int64_t device_memory_bytes = 0;
  double flops_per_ns = 0;
  double device_bytes_per_ns = 0;
  bool supports_float8 = false;
  bool operator==(const NodeKind&) const = default;
};

// Equal devices in equal nodes, or in those of each kind. Figures are what programs attain, not what data
// sheets promise; links are one direction of one device, and between nodes of one network adapter (NIC),
// which neighbouring devices share evenly when a node has fewer adapters than devices.
struct Cluster {
  std::string name;
  int nodes = 1;
  int gpus_per_node = 1;  // devices of any kind
  int64_t device_memory_bytes = 0;
  double flops_per_ns = 0;         // dense 16-bit matrix products; 1 FLOP/ns is 1 GFLOP/s
  double device_bytes_per_ns = 0;  // read from its own memory
  bool supports_float8 = false;    // has units for products of floats of 8 bits
  LinkSpeed intra_node;            // between devices of a node
  LinkSpeed inter_node;            // between nodes, of one NIC
  int nics_per_node = 1;           // divides gpus_per_node
  double host_bytes_per_ns = 0;    // a device's copies to and from host memory
  int64_t host_memory_bytes = 0;   // of one node
  // By size, each of several whole ones of the kind before; none: all nodes are joined alike, by inter_node.
  std::vector<NodeGroup> groups = {};
  // Where nodes differ, in their order; the figures of devices above are then those of the fastest kind, and
  // links the slowest that there are.
  std::vector<NodeKind> kinds = {};

  int gpus() const { return nodes * gpus_per_node; }
  Topology topology() const;
  bool operator==(const Cluster&) const = default;
};

// Presets: "local", "a100x8", "a800x8", "h100x8", "h200x8", "l40sx8", with `nodes` nodes; or several, as
// "2x h100x8 + 4x a800x8", which say their nodes themselves. InputError listing them for another name, or
// when nodes < 1.
Cluster cluster_preset(const std::string& name, int nodes);
// Whether it is a preset's name, or several.
bool is_cluster_preset(const std::string& name);

// What ranks compute on that fill the cluster's nodes in their order, as strategies count it; none where all
// are alike. A plan may use so many tenths of a device's memory.
std::vector<Device> devices_of(const Cluster& cluster, int ranks, int tenths);
std::vector<std::string> cluster_preset_names();

// "sluice.cluster/1" and back; without nics_per_node every device has its own; with kinds the devices'
// figures, and nodes, may be left out. InputError naming `name`, the
// key and the value.
base::Json to_json(const Cluster& cluster);
Cluster cluster_from_json(const base::Json& json, const std::string& name);

// InputError naming the first figure that no machine has: counts and sizes < 1, speeds that are not positive,
// NICs that do not divide the devices, groups that are not several whole ones or are joined faster than what
// they join, kinds that have other nodes in all or none that is as fast as the cluster's.
void validate(const Cluster& cluster);

}  // namespace sluice::strategy
