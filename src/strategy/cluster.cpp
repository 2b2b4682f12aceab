#include "strategy/cluster.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/renames.h"
#include "base/text.h"
#include "strategy/text_cursor.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kClusterSchema = "sluice.cluster/1";
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// Ranges of a cluster's figures, far beyond any machine on either side.
constexpr base::Range<int> kDevices{1, static_cast<int>(kMaxRanks)};
constexpr base::Range<int64_t> kMemoryBytes{1, int64_t{1} << 50};
constexpr base::Range<double> kFlopsPerNs{1e-3, 1e9};
constexpr base::Range<double> kBytesPerNs{1e-6, 1e6};
constexpr base::Range<double> kLatencyNs{0, 1e9};  // a second
// FLOPs for each byte read, assumed if a file leaves out device_bytes_per_ns: between those of the presets.
constexpr double kFlopsAByte = 150;

// One core for each rank, over loopback. Gloo on two cores: 24 µs for a small message and 1 byte/ns in a
// ring; compute: FP32 products of a small model. In training a probe of the machine replaces these figures.
Cluster local() {
  return {.name = "local",
          .gpus_per_node = 4,
          .device_memory_bytes = 2 * kGiB,
          .flops_per_ns = 30,
          .device_bytes_per_ns = 8,
          .intra_node = {1.0, 24e3},
          .inter_node = {1.0, 24e3},
          .nics_per_node = 4,
          .host_bytes_per_ns = 5,
          .host_memory_bytes = 8 * kGiB};
}

// Memory: 81,252 MiB (the limit in Hydraulis' planner), 80 % of 2,039 GB/s. Compute:
// data/rates/rates.json's figure for A100. Links (Hydraulis, section 8.1): NVLink 400 GB/s both ways
// together, so 200 GB/s for each direction of a device; 200 GB/s InfiniBand for a node, so 25 GB/s for each
// of eight adapters. Links attain 80 %. PCIe 4.0 x16: 32 GB/s, 75 % attained. Latencies and host memory:
// typical values.
Cluster a800x8() {
  return {.name = "a800x8",
          .gpus_per_node = 8,
          .device_memory_bytes = 81252 * kMiB,
          .flops_per_ns = 251e3,
          .device_bytes_per_ns = 1631,
          .intra_node = {160, 5e3},
          .inter_node = {20, 10e3},
          .nics_per_node = 8,
          .host_bytes_per_ns = 24,
          .host_memory_bytes = 1024 * kGiB};
}

// NVIDIA's A100 and DGX A100 data sheets. Memory: 40 GB (40,536 MiB in Hydraulis' planner), 1,555 GB/s (80
// % attained). Links: NVLink 600 GB/s both ways together, eight 200 Gb/s adapters for a node (80 %
// attained), PCIe 4.0 x16 32 GB/s (75 %). Host memory: 1 TB. Compute: as for A800. Latencies: typical
// values.
Cluster a100x8() {
  return {.name = "a100x8",
          .gpus_per_node = 8,
          .device_memory_bytes = 40536 * kMiB,
          .flops_per_ns = 251e3,
          .device_bytes_per_ns = 1244,
          .intra_node = {240, 5e3},
          .inter_node = {20, 10e3},
          .nics_per_node = 8,
          .host_bytes_per_ns = 24,
          .host_memory_bytes = 1024 * kGiB};
}

// NVIDIA's H100 SXM data sheet and DGX H100 user guide. Memory: 80 GB, 3,350 GB/s (80 %). Links: NVLink 900
// GB/s both ways together, eight 400 Gb/s adapters for a node (80 % attained), PCIe 5.0 x16 64 GB/s (75 %).
// Host memory: 2 TB. Latencies: typical values.
Cluster h100x8() {
  return {.name = "h100x8",
          .gpus_per_node = 8,
          .device_memory_bytes = 81559 * kMiB,
          .flops_per_ns = 735e3,
          .device_bytes_per_ns = 2680,
          .supports_float8 = true,
          .intra_node = {360, 5e3},
          .inter_node = {40, 10e3},
          .nics_per_node = 8,
          .host_bytes_per_ns = 48,
          .host_memory_bytes = 2048 * kGiB};
}

// NVIDIA's H200 SXM data sheet: an H100 with 141 GB (143,771 MiB as its driver reports) at 4,800 GB/s.
Cluster h200x8() {
  Cluster cluster = h100x8();
  cluster.name = "h200x8";
  cluster.device_memory_bytes = 143771 * kMiB;
  cluster.device_bytes_per_ns = 3840;
  return cluster;
}

// NVIDIA's B200 and DGX B200 data sheets. Memory: 180 GB (183,359 MiB as its driver reports), 8,000 GB/s (80
// %). Links: NVLink 1,800 GB/s both ways together, eight 400 Gb/s adapters for a node, PCIe 5.0 x16. Host
// memory: 2 TB.
Cluster b200x8() {
  Cluster cluster = h100x8();
  cluster.name = "b200x8";
  cluster.device_memory_bytes = 183359 * kMiB;
  cluster.flops_per_ns = 1620e3;
  cluster.device_bytes_per_ns = 6400;
  cluster.intra_node.bytes_per_ns = 720;
  return cluster;
}

// NVIDIA's L40S data sheet. Memory: 48 GB (46,068 MiB as its driver reports), 864 GB/s (80 %). Compute: 362
// TFLOP/s dense BF16 (half attained). PCIe 4.0 x16: 32 GB/s (75 %), between devices of a node too: no NVLink.
// Typical values: four 200 Gb/s adapters (80 % attained) and 1 TB of host memory for a node; latencies.
Cluster l40sx8() {
  return {.name = "l40sx8",
          .gpus_per_node = 8,
          .device_memory_bytes = 46068 * kMiB,
          .flops_per_ns = 181e3,
          .device_bytes_per_ns = 691,
          .supports_float8 = true,
          .intra_node = {24, 10e3},
          .inter_node = {20, 10e3},
          .nics_per_node = 4,
          .host_bytes_per_ns = 24,
          .host_memory_bytes = 1024 * kGiB};
}

constexpr Cluster (*kPresets[])() = {local, a100x8, a800x8, h100x8, h200x8, b200x8, l40sx8};

Json to_json(const LinkSpeed& link) {
  return {{"bytes_per_ns", link.bytes_per_ns}, {"latency_ns", link.latency_ns}};
}

// A misspelled key would silently leave its default in place.
void refuse_unknown_keys(const Json& json, const std::vector<std::string>& known, const std::string& name) {
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::count(known, key) > 0) continue;
    if (const base::Rename* row = base::renamed("json", key, kClusterSchema))
      throw InputError(text(name, ": ", key, " is now ", row->name));
    const std::string nearest = base::nearest_word(key, known);
    throw InputError(text(name, ": unknown key '", key, "': ",
                          nearest.empty() ? text("known are ", base::join(known, ", "))
                                          : text("did you mean '", nearest, "'?")));
  }
}

LinkSpeed link_from_json(const Json& json, const std::string& key, const std::string& name) {
  const auto link = base::require<Json>(json, key, name);
  const std::string where = text(name, ": ", key);
  refuse_unknown_keys(link, {"bytes_per_ns", "latency_ns"}, where);
  return {.bytes_per_ns = base::require_in(link, "bytes_per_ns", kBytesPerNs, where),
          .latency_ns = base::require_in(link, "latency_ns", kLatencyNs, where)};
}

}  // namespace

Topology Cluster::topology() const {
  std::vector<int> group_ranks;
  for (const NodeGroup& group : groups) group_ranks.push_back(group.nodes * gpus_per_node);
  return {gpus_per_node, gpus_per_node / nics_per_node, std::move(group_ranks)};
}

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const auto preset : kPresets) names.push_back(preset().name);
  return names;
}

namespace {

Cluster named_preset(const std::string& name) {
  for (const auto preset : kPresets) {
    if (Cluster cluster = preset(); cluster.name == name) return cluster;
  }
  throw InputError(text("cluster preset '", name, "' is unknown: choose one of ",
                        base::join(cluster_preset_names(), ", "), ", or give a file"));
}

NodeKind kind_of(const Cluster& cluster) {
  return {cluster.name,
          cluster.nodes,
          cluster.device_memory_bytes,
          cluster.flops_per_ns,
          cluster.device_bytes_per_ns,
          cluster.supports_float8};
}

// Takes the devices' figures from the fastest kind and the number of nodes from all kinds.
void take_kinds(Cluster& cluster) {
  const NodeKind& fastest = *std::ranges::max_element(cluster.kinds, {}, &NodeKind::flops_per_ns);
  cluster.device_memory_bytes = fastest.device_memory_bytes;
  cluster.flops_per_ns = fastest.flops_per_ns;
  cluster.device_bytes_per_ns = fastest.device_bytes_per_ns;
  cluster.supports_float8 = fastest.supports_float8;
  cluster.nodes = 0;
  for (const NodeKind& kind : cluster.kinds) cluster.nodes += kind.nodes;
}

LinkSpeed slower(const LinkSpeed& a, const LinkSpeed& b) {
  return {std::min(a.bytes_per_ns, b.bytes_per_ns), std::max(a.latency_ns, b.latency_ns)};
}

// "2x h100x8 + 4x a800x8" as its parts.
std::vector<Cluster> preset_parts(const std::string& name) {
  std::vector<Cluster> parts;
  for (const std::string& part : base::split(name, '+')) {
    const std::string word(base::trim(part));
    const size_t times = word.find("x ");
    const bool counted = times != std::string::npos && times > 0 &&
                         word.find_first_not_of("0123456789") == times && times <= 6;
    if (!counted) {
      throw InputError(text("cluster '", name, "': '", word,
                            "' says no nodes: give as many as '2x h100x8' does, for each kind"));
    }
    Cluster cluster = named_preset(std::string(base::trim(std::string_view(word).substr(times + 1))));
    cluster.nodes = std::stoi(word.substr(0, times));
    validate(cluster);
    parts.push_back(std::move(cluster));
  }
  return parts;
}

Cluster mixed_preset(const std::string& name) {
  const std::vector<Cluster> parts = preset_parts(name);
  Cluster cluster = parts.front();
  cluster.name = name;
  for (const Cluster& part : parts) {
    if (part.gpus_per_node != cluster.gpus_per_node || part.nics_per_node != cluster.nics_per_node) {
      throw InputError(text("cluster '", name, "': nodes of ", part.name, " have ", part.gpus_per_node,
                            " devices and those of ", parts.front().name, " ", cluster.gpus_per_node,
                            ": name kinds whose nodes have as many"));
    }
    cluster.intra_node = slower(cluster.intra_node, part.intra_node);
    cluster.inter_node = slower(cluster.inter_node, part.inter_node);
    cluster.host_bytes_per_ns = std::min(cluster.host_bytes_per_ns, part.host_bytes_per_ns);
    cluster.host_memory_bytes = std::min(cluster.host_memory_bytes, part.host_memory_bytes);
    cluster.kinds.push_back(kind_of(part));
  }
  take_kinds(cluster);
  return cluster;
}

}  // namespace

bool is_cluster_preset(const std::string& name) {
  return name.find('+') != std::string::npos || std::ranges::count(cluster_preset_names(), name) > 0;
}

Cluster cluster_preset(const std::string& name, int nodes) {
  Cluster cluster = name.find('+') == std::string::npos ? named_preset(name) : mixed_preset(name);
  if (cluster.kinds.empty()) cluster.nodes = nodes;
  validate(cluster);
  return cluster;
}

std::vector<Device> devices_of(const Cluster& cluster, int ranks, int tenths) {
  std::vector<Device> devices;
  for (const NodeKind& kind : cluster.kinds) {
    const Device device{static_cast<int>(std::lround(100 * cluster.flops_per_ns / kind.flops_per_ns)),
                        kind.device_memory_bytes / 10 * tenths};
    const auto own = static_cast<size_t>(kind.nodes) * static_cast<size_t>(cluster.gpus_per_node);
    devices.insert(devices.end(), own, device);
  }
  if (!devices.empty()) devices.resize(static_cast<size_t>(ranks), devices.back());
  return devices;
}

Json to_json(const Cluster& cluster) {
  Json json = {{"schema", kClusterSchema},
               {"name", cluster.name},
               {"nodes", cluster.nodes},
               {"gpus_per_node", cluster.gpus_per_node},
               {"device_memory_bytes", cluster.device_memory_bytes},
               {"flops_per_ns", cluster.flops_per_ns},
               {"device_bytes_per_ns", cluster.device_bytes_per_ns},
               {"supports_float8", cluster.supports_float8},
               {"intra_node", to_json(cluster.intra_node)},
               {"inter_node", to_json(cluster.inter_node)},
               {"nics_per_node", cluster.nics_per_node},
               {"host_bytes_per_ns", cluster.host_bytes_per_ns},
               {"host_memory_bytes", cluster.host_memory_bytes}};
  for (const NodeGroup& group : cluster.groups)
    json["groups"].push_back(
        {{"name", group.name}, {"nodes", group.nodes}, {"between", to_json(group.between)}});
  for (const NodeKind& kind : cluster.kinds) {
    json["kinds"].push_back({{"name", kind.name},
                             {"nodes", kind.nodes},
                             {"device_memory_bytes", kind.device_memory_bytes},
                             {"flops_per_ns", kind.flops_per_ns},
                             {"device_bytes_per_ns", kind.device_bytes_per_ns},
                             {"supports_float8", kind.supports_float8}});
  }
  return json;
}

namespace {

bool multiplies_float8_of(const Json& json, const std::string& name) {
  return json.contains("supports_float8") && base::require<bool>(json, "supports_float8", name);
}

NodeKind kind_from_json(const Json& json, const std::string& name) {
  refuse_unknown_keys(
      json,
      {"name", "nodes", "device_memory_bytes", "flops_per_ns", "device_bytes_per_ns", "supports_float8"},
      name);
  const double flops = base::require_in(json, "flops_per_ns", kFlopsPerNs, name);
  return {.name = base::require<std::string>(json, "name", name),
          .nodes = base::require_in(json, "nodes", kDevices, name),
          .device_memory_bytes = base::require_in(json, "device_memory_bytes", kMemoryBytes, name),
          .flops_per_ns = flops,
          .device_bytes_per_ns = json.contains("device_bytes_per_ns")
                                     ? base::require_in(json, "device_bytes_per_ns", kBytesPerNs, name)
                                     : flops / kFlopsAByte,
          .supports_float8 = multiplies_float8_of(json, name)};
}

std::vector<NodeGroup> groups_from_json(const Json& json, const std::string& name) {
  std::vector<NodeGroup> groups;
  if (!json.contains("groups")) return groups;
  const Json& listed = json.at("groups");
  if (!listed.is_array())
    throw InputError(text(name, ": groups is ", base::excerpt(listed), ": give a list of groups of nodes"));
  for (size_t i = 0; i < listed.size(); ++i) {
    const std::string where = text(name, ": groups[", i, "]");
    refuse_unknown_keys(listed.at(i), {"name", "nodes", "between"}, where);
    groups.push_back({.name = base::require<std::string>(listed.at(i), "name", where),
                      .nodes = base::require_in(listed.at(i), "nodes", kDevices, where),
                      .between = link_from_json(listed.at(i), "between", where)});
  }
  return groups;
}

// Reads the file's kinds. Its own figures of nodes and devices must agree with them or be left out.
Json with_kinds(Json json, const std::string& name, std::vector<NodeKind>& kinds) {
  if (!json.is_object() || !json.contains("kinds")) return json;
  const Json listed = json.at("kinds");
  if (!listed.is_array() || listed.empty())
    throw InputError(text(name, ": kinds is ", base::excerpt(listed), ": give a list of kinds of nodes"));
  for (size_t i = 0; i < listed.size(); ++i)
    kinds.push_back(kind_from_json(listed.at(i), text(name, ": kinds[", i, "]")));
  json.erase("kinds");
  Cluster cluster;
  cluster.kinds = kinds;
  take_kinds(cluster);
  const Json own = to_json(cluster);
  for (const char* key :
       {"nodes", "device_memory_bytes", "flops_per_ns", "device_bytes_per_ns", "supports_float8"}) {
    if (json.contains(key) && json.at(key) != own.at(key)) {
      throw InputError(text(name, ": ", key, " is ", json.at(key).dump(), ", but by its kinds ",
                            own.at(key).dump(), ": leave it out, or mend the kinds"));
    }
    json[key] = own.at(key);
  }
  return json;
}

}  // namespace

Cluster cluster_from_json(const Json& file, const std::string& name) {
  base::require_schema(file, kClusterSchema, name);
  std::vector<NodeKind> kinds;
  const Json json = with_kinds(file, name, kinds);
  std::vector<std::string> known = {"groups"};
  const Json own = to_json(Cluster());
  for (const auto& [key, value] : own.items()) known.push_back(key);
  refuse_unknown_keys(json, known, name);
  Cluster cluster = {
      .name = base::require<std::string>(json, "name", name),
      .nodes = base::require_in(json, "nodes", kDevices, name),
      .gpus_per_node = base::require_in(json, "gpus_per_node", kDevices, name),
      .device_memory_bytes = base::require_in(json, "device_memory_bytes", kMemoryBytes, name),
      .flops_per_ns = base::require_in(json, "flops_per_ns", kFlopsPerNs, name),
      .device_bytes_per_ns = json.contains("device_bytes_per_ns")
                                 ? base::require_in(json, "device_bytes_per_ns", kBytesPerNs, name)
                                 : json.at("flops_per_ns").get<double>() / kFlopsAByte,
      .supports_float8 = multiplies_float8_of(json, name),
      .intra_node = link_from_json(json, "intra_node", name),
      .inter_node = link_from_json(json, "inter_node", name),
      .nics_per_node = base::require_in(
          json, json.contains("nics_per_node") ? "nics_per_node" : "gpus_per_node", kDevices, name),
      .host_bytes_per_ns = base::require_in(json, "host_bytes_per_ns", kBytesPerNs, name),
      .host_memory_bytes = base::require_in(json, "host_memory_bytes", kMemoryBytes, name)};
  cluster.groups = groups_from_json(json, name);
  cluster.kinds = std::move(kinds);
  try {
    validate(cluster);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return cluster;
}

namespace {

template <typename Value, typename Allowed>
void require_figure(const std::string& key, Value value, const Allowed& range) {
  base::require_in_range(text("cluster: ", key), value, range);
}

void require_link(const std::string& key, const LinkSpeed& link) {
  require_figure(key + ".bytes_per_ns", link.bytes_per_ns, kBytesPerNs);
  require_figure(key + ".latency_ns", link.latency_ns, kLatencyNs);
}

void validate_groups(const Cluster& cluster) {
  int nodes = 1;
  LinkSpeed inside = cluster.inter_node;
  for (size_t i = 0; i < cluster.groups.size(); ++i) {
    const NodeGroup& group = cluster.groups[i];
    const std::string key = text("groups[", i, "]");
    require_figure(key + ".nodes", group.nodes, kDevices);
    if (int64_t{group.nodes} * cluster.gpus_per_node > kMaxRanks) {
      throw InputError(text("cluster: ", key, ".nodes is ", group.nodes, ", which are more than ", kMaxRanks,
                            " devices: lower it"));
    }
    if (group.nodes <= nodes || group.nodes % nodes != 0) {
      throw InputError(text("cluster: ", key, ".nodes is ", group.nodes, " but groups are several of ",
                            nodes == 1 ? "the nodes" : text("the ", nodes, " nodes before"),
                            ": give a multiple of ", nodes, " above it"));
    }
    require_link(key + ".between", group.between);
    if (group.between.bytes_per_ns > inside.bytes_per_ns || group.between.latency_ns < inside.latency_ns) {
      throw InputError(text("cluster: ", key, ".between is faster than what joins the nodes inside (",
                            inside.bytes_per_ns, " bytes_per_ns, ", inside.latency_ns,
                            " latency_ns): give what a NIC attains between groups, or leave them out"));
    }
    nodes = group.nodes;
    inside = group.between;
  }
}

}  // namespace

void validate(const Cluster& cluster) {
  const auto require = [](const char* key, auto value, const auto& range) {
    require_figure(key, value, range);
  };
  require("nodes", cluster.nodes, kDevices);
  require("gpus_per_node", cluster.gpus_per_node, kDevices);
  if (int64_t{cluster.nodes} * cluster.gpus_per_node > kMaxRanks) {
    throw InputError(text("cluster: ", cluster.nodes, " nodes of ", cluster.gpus_per_node,
                          " devices are more than ", kMaxRanks, " devices: lower one"));
  }
  require("nics_per_node", cluster.nics_per_node, kDevices);
  if (cluster.gpus_per_node % cluster.nics_per_node != 0) {
    throw InputError(text("cluster: nics_per_node is ", cluster.nics_per_node, " but must divide the ",
                          cluster.gpus_per_node, " devices of a node: give a divisor"));
  }
  require("device_memory_bytes", cluster.device_memory_bytes, kMemoryBytes);
  require("flops_per_ns", cluster.flops_per_ns, kFlopsPerNs);
  require("device_bytes_per_ns", cluster.device_bytes_per_ns, kBytesPerNs);
  require_link("intra_node", cluster.intra_node);
  require_link("inter_node", cluster.inter_node);
  validate_groups(cluster);
  require("host_bytes_per_ns", cluster.host_bytes_per_ns, kBytesPerNs);
  require("host_memory_bytes", cluster.host_memory_bytes, kMemoryBytes);
  if (cluster.kinds.empty()) return;
  Cluster of_kinds = cluster;
  take_kinds(of_kinds);
  if (of_kinds != cluster) {
    throw InputError(text("cluster: its kinds have ", of_kinds.nodes, " nodes and at most ",
                          of_kinds.flops_per_ns, " flops_per_ns, but it has ", cluster.nodes, " and ",
                          cluster.flops_per_ns, ": give what the kinds come to"));
  }
}

}  // namespace sluice::strategy
