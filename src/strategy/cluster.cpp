#include "strategy/cluster.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "strategy/text_cursor.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kSchema = "sluice.cluster/1";
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// What the figures of a cluster may be: far beyond any machine on either side.
constexpr base::Range<int> kDevices{1, static_cast<int>(kMaxRanks)};
constexpr base::Range<int64_t> kMemoryBytes{1, int64_t{1} << 50};
constexpr base::Range<double> kFlopsPerNs{1e-3, 1e9};
constexpr base::Range<double> kBytesPerNs{1e-6, 1e6};
constexpr base::Range<double> kLatencyNs{0, 1e9};  // a second
// Of devices whose memory's speed nobody says: between those of the presets.
constexpr double kFlopsAByte = 150;

// One core a rank over loopback: 24 µs for a small message and 1 byte/ns in a ring, measured with Gloo on
// two cores; FP32 products of a small model. A probe of the machine replaces it in training.
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

// Memory: 81,252 MiB (the limit in Hydraulis' planner). Compute: half of 312 TFLOP/s (NVIDIA's data sheet,
// dense BF16), about what large products in training attain; 80 % of 2,039 GB/s of its memory. Links: NVLink
// 400 GB/s both ways together and 200 GB/s InfiniBand a node of eight (Hydraulis, section 8.1), so 200 GB/s a
// direction and device, and 25 GB/s of each of eight adapters; 80 % of either attained. PCIe 4.0 x16: 32
// GB/s, 75 % attained. Latencies and host memory: typical values.
Cluster a800x8() {
  return {.name = "a800x8",
          .gpus_per_node = 8,
          .device_memory_bytes = 81252 * kMiB,
          .flops_per_ns = 156e3,
          .device_bytes_per_ns = 1631,
          .intra_node = {160, 5e3},
          .inter_node = {20, 10e3},
          .nics_per_node = 8,
          .host_bytes_per_ns = 24,
          .host_memory_bytes = 1024 * kGiB};
}

// NVIDIA's A100 and DGX A100 data sheets: 40 GB (40,536 MiB in Hydraulis' planner), 312 TFLOP/s dense BF16
// (half attained), memory 1,555 GB/s (80 % attained), NVLink 600 GB/s both ways together, eight 200 Gb/s
// adapters a node (80 % attained), PCIe 4.0 x16 32 GB/s (75 %), 1 TB of host memory. Latencies: typical
// values.
Cluster a100x8() {
  return {.name = "a100x8",
          .gpus_per_node = 8,
          .device_memory_bytes = 40536 * kMiB,
          .flops_per_ns = 156e3,
          .device_bytes_per_ns = 1244,
          .intra_node = {240, 5e3},
          .inter_node = {20, 10e3},
          .nics_per_node = 8,
          .host_bytes_per_ns = 24,
          .host_memory_bytes = 1024 * kGiB};
}

// NVIDIA's H100 SXM data sheet and DGX H100 user guide: 80 GB, 989 TFLOP/s dense BF16 (half attained), memory
// 3,350 GB/s (80 %), NVLink 900 GB/s both ways together, eight 400 Gb/s adapters a node (80 % attained),
// PCIe 5.0 x16 64 GB/s (75 %), 2 TB of host memory. Latencies: typical values.
Cluster h100x8() {
  return {.name = "h100x8",
          .gpus_per_node = 8,
          .device_memory_bytes = 81559 * kMiB,
          .flops_per_ns = 495e3,
          .device_bytes_per_ns = 2680,
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

Json to_json(const LinkSpeed& link) {
  return {{"bytes_per_ns", link.bytes_per_ns}, {"latency_ns", link.latency_ns}};
}

// A key that is misspelled would be a default that nobody asked for.
void refuse_unknown_keys(const Json& json, const std::vector<std::string>& known, const std::string& name) {
  if (!json.is_object()) return;
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::count(known, key) > 0) continue;
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

std::vector<std::string> cluster_preset_names() { return {"local", "a100x8", "a800x8", "h100x8", "h200x8"}; }

Cluster cluster_preset(const std::string& name, int nodes) {
  Cluster cluster;
  for (const Cluster& preset : {local(), a100x8(), a800x8(), h100x8(), h200x8()}) {
    if (preset.name == name) cluster = preset;
  }
  if (cluster.name.empty()) {
    throw InputError(text("cluster preset '", name, "' is unknown: choose one of ",
                          base::join(cluster_preset_names(), ", "), ", or give a file"));
  }
  cluster.nodes = nodes;
  validate(cluster);
  return cluster;
}

Json to_json(const Cluster& cluster) {
  return {{"schema", kSchema},
          {"name", cluster.name},
          {"nodes", cluster.nodes},
          {"gpus_per_node", cluster.gpus_per_node},
          {"device_memory_bytes", cluster.device_memory_bytes},
          {"flops_per_ns", cluster.flops_per_ns},
          {"device_bytes_per_ns", cluster.device_bytes_per_ns},
          {"intra_node", to_json(cluster.intra_node)},
          {"inter_node", to_json(cluster.inter_node)},
          {"nics_per_node", cluster.nics_per_node},
          {"host_bytes_per_ns", cluster.host_bytes_per_ns},
          {"host_memory_bytes", cluster.host_memory_bytes}};
}

Cluster cluster_from_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  std::vector<std::string> known;
  const Json own = to_json(Cluster());
  for (const auto& [key, value] : own.items()) known.push_back(key);
  refuse_unknown_keys(json, known, name);
  const Cluster cluster = {
      .name = base::require<std::string>(json, "name", name),
      .nodes = base::require_in(json, "nodes", kDevices, name),
      .gpus_per_node = base::require_in(json, "gpus_per_node", kDevices, name),
      .device_memory_bytes = base::require_in(json, "device_memory_bytes", kMemoryBytes, name),
      .flops_per_ns = base::require_in(json, "flops_per_ns", kFlopsPerNs, name),
      .device_bytes_per_ns = json.contains("device_bytes_per_ns")
                                 ? base::require_in(json, "device_bytes_per_ns", kBytesPerNs, name)
                                 : json.at("flops_per_ns").get<double>() / kFlopsAByte,
      .intra_node = link_from_json(json, "intra_node", name),
      .inter_node = link_from_json(json, "inter_node", name),
      .nics_per_node = base::require_in(
          json, json.contains("nics_per_node") ? "nics_per_node" : "gpus_per_node", kDevices, name),
      .host_bytes_per_ns = base::require_in(json, "host_bytes_per_ns", kBytesPerNs, name),
      .host_memory_bytes = base::require_in(json, "host_memory_bytes", kMemoryBytes, name)};
  try {
    validate(cluster);
  } catch (const InputError& error) {
    throw InputError(text(name, ": ", error.what()));
  }
  return cluster;
}

void validate(const Cluster& cluster) {
  const auto require = [](const char* key, auto value, const auto& range) {
    base::require_in_range(text("cluster: ", key), value, range);
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
  require("intra_node.bytes_per_ns", cluster.intra_node.bytes_per_ns, kBytesPerNs);
  require("intra_node.latency_ns", cluster.intra_node.latency_ns, kLatencyNs);
  require("inter_node.bytes_per_ns", cluster.inter_node.bytes_per_ns, kBytesPerNs);
  require("inter_node.latency_ns", cluster.inter_node.latency_ns, kLatencyNs);
  require("host_bytes_per_ns", cluster.host_bytes_per_ns, kBytesPerNs);
  require("host_memory_bytes", cluster.host_memory_bytes, kMemoryBytes);
}

}  // namespace sluice::strategy
