#include "strategy/device_peaks.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace sluice::strategy {
namespace {

struct Peak {
  const char* name;  // in capitals; a name precedes those that it contains
  double flops_per_ns;
};

// NVIDIA's data sheets: dense BF16 (FP16 if there is no BF16) with sums in FP32, without sparsity.
constexpr Peak kPeaks[] = {
    {"GB300", 2500e3},     {"GB200", 2500e3},      {"B300", 2250e3},          {"B200", 2250e3},
    {"B100", 1750e3},      {"GH200", 989.4e3},     {"H200", 989.4e3},         {"H100 PCIE", 756e3},
    {"H100 NVL", 835.5e3}, {"H100", 989.4e3},      {"H800 PCIE", 756e3},      {"H800", 989.4e3},
    {"H20", 148e3},        {"A100", 312e3},        {"A800", 312e3},           {"A40", 149.7e3},
    {"A30", 165e3},        {"A10", 125e3},         {"L40S", 362e3},           {"L40", 181e3},
    {"L4", 121e3},         {"RTX A6000", 154.8e3}, {"RTX 6000 ADA", 364.2e3}, {"RTX 5090", 209.5e3},
    {"RTX 4090", 165.2e3}, {"RTX 3090", 71e3},     {"V100", 125e3},           {"T4", 65e3}};

}  // namespace

std::optional<double> peak_flops_per_ns(std::string_view device) {
  std::string name(device);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const Peak& peak : kPeaks) {
    // The name must not be part of a longer one: "L4" does not match "L40G", nor "A10" "A10G".
    for (size_t at = name.find(peak.name); at != std::string::npos; at = name.find(peak.name, at + 1)) {
      const size_t end = at + std::string_view(peak.name).size();
      const bool begins = at == 0 || std::isalnum(static_cast<unsigned char>(name[at - 1])) == 0;
      // An 'X' may follow, as in "h100x8": the number of devices of a node.
      const bool ends =
          end == name.size() || name[end] == 'X' || std::isalnum(static_cast<unsigned char>(name[end])) == 0;
      if (begins && ends) return peak.flops_per_ns;
    }
  }
  return std::nullopt;
}

std::optional<double> peak_flops_per_ns(const Cluster& cluster, int devices) {
  if (cluster.kinds.empty()) {
    const std::optional<double> each = peak_flops_per_ns(cluster.name);
    return each ? std::optional(*each * devices) : std::nullopt;
  }
  double sum = 0;
  for (const NodeKind& kind : cluster.kinds) {
    const int of_kind = std::min(devices, kind.nodes * (cluster.gpus() / cluster.nodes));
    const std::optional<double> each = peak_flops_per_ns(kind.name);
    if (of_kind > 0 && !each) return std::nullopt;
    sum += each.value_or(0) * of_kind;
    devices -= of_kind;
  }
  return sum;
}

}  // namespace sluice::strategy
