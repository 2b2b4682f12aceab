#include "cost/device_rates.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "cost/embedded.h"

namespace sluice::cost {
namespace {

using base::Json;

constexpr const char* kName = "rates.json";
constexpr const char* kMeasuredFirst = "a100";

double number(const Json& json, const std::string& key) { return base::require<double>(json, key, kName); }

std::string source_of(const Json& json) { return base::require<std::string>(json, "source", kName); }

AttentionRate attention_rate(const Json& json) {
  return {.flops_per_ns = number(json, "flops_per_ns"), .half_length_tokens = number(json, "half_length")};
}

DeviceRates device_from_json(const Json& json) {
  DeviceRates rates{.device = base::require<std::string>(json, "device", kName),
                    .product_flops_per_ns = number(json.at("products"), "flops_per_ns"),
                    .float8_speedup = base::get_or<double>(json.at("products"), "float8_speedup", 0, kName),
                    .product_source = source_of(json.at("products"))};
  for (const Json& kernel : json.at("attention")) {
    rates.attention.push_back({.name = base::require<std::string>(kernel, "kernel", kName),
                               .width = base::require<int64_t>(kernel, "width", kName),
                               .forward = attention_rate(kernel.at("forward")),
                               .backward = attention_rate(kernel.at("backward")),
                               .source = source_of(kernel)});
  }
  if (!json.contains("collective")) return rates;
  const Json& collective = json.at("collective");
  rates.collective = {.bytes_per_ns = number(collective, "bytes_per_ns"),
                      .latency_ns = number(collective, "latency_ns")};
  rates.collective_source = source_of(collective);
  return rates;
}

const Json& file() {
  static const Json json = base::parse_json(rate_files().front().content, kName);
  return json;
}

}  // namespace

const std::vector<DeviceRates>& device_rates() {
  static const std::vector<DeviceRates> devices = [] {
    std::vector<DeviceRates> read;
    for (const Json& device : file().at("devices")) read.push_back(device_from_json(device));
    return read;
  }();
  return devices;
}

const HostRates& host_rates() {
  static const HostRates host{.layer_pass_ns = number(file().at("host"), "layer_pass_ns"),
                              .ring_step_ns = number(file().at("host"), "ring_step_ns"),
                              .source = source_of(file().at("host"))};
  return host;
}

const DeviceRates& rates_of_devices(const strategy::Cluster& cluster) {
  std::string name = cluster.name;
  if (!cluster.kinds.empty())
    name = std::ranges::max_element(cluster.kinds, {}, &strategy::NodeKind::flops_per_ns)->name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::vector<DeviceRates>& devices = device_rates();
  const auto is_named = [&](const DeviceRates& rates) { return name.find(rates.device) != std::string::npos; };
  auto found = std::ranges::find_if(devices, is_named);
  if (found == devices.end()) found = std::ranges::find(devices, kMeasuredFirst, &DeviceRates::device);
  return *found;
}

bool is_cpu(const strategy::Cluster& cluster) {
  const std::string& name = cluster.kinds.empty() ? cluster.name : cluster.kinds.front().name;
  return name == "local";
}

const AttentionKernel& kernel_of_width(const std::vector<AttentionKernel>& kernels, int64_t width) {
  SLUICE_ASSERT(!kernels.empty(), "a device without attention kernels");
  const auto holds = [&](const AttentionKernel& kernel) { return kernel.width >= width; };
  const auto found = std::ranges::find_if(kernels, holds);
  return found == kernels.end() ? kernels.back() : *found;
}

}  // namespace sluice::cost
