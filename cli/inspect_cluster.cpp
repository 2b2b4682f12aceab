// Prints a cluster preset for `sluice inspect`: the rates that plans are priced with, and their sources.
#include <cstdio>
#include <iostream>

#include "base/text.h"
#include "cli/inspect_files.h"
#include "cost/analytic.h"

namespace sluice::cli {
namespace {

using base::text;

// FLOPs a nanosecond as TFLOP/s.
std::string tera(double flops_per_ns) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g TFLOP/s", flops_per_ns / 1e3);
  return buffer;
}

std::string rate(const cost::AttentionRate& of) {
  return text(tera(of.flops_per_ns), " (half of it at ", of.half_length_tokens, " tokens)");
}

std::string link(const strategy::LinkSpeed& speed) {
  return text(speed.latency_ns / 1e3, " µs + ", speed.bytes_per_ns, " GB/s");
}

void print_kernels(const cost::DeviceRates& device, const cost::Rates& rates) {
  const bool measured = rates.product_flops_per_ns == device.product_flops_per_ns;
  std::cout << text("  products: ", tera(rates.product_flops_per_ns), "; ",
                    measured ? device.product_source
                             : text("assumed, half of the data sheet; attention in proportion as on ", device.device),
                    "\n");
  for (const cost::AttentionKernel& kernel : rates.attention_kernels) {
    std::cout << text("  attention, heads up to ", kernel.width, ": forward ", rate(kernel.forward), ", backward ",
                      rate(kernel.backward), "; ", kernel.name, ", ", kernel.source, "\n");
  }
  std::cout << text("  host: ", rates.layer_overhead_ns / 1e3, " µs of each pass over a layer, ",
                    rates.ring_step_ns / 1e3, " µs at least of a step of ring attention in a layer's forward pass; ",
                    cost::host_rates().source, "\n");
  if (!device.collective_source.empty())
    std::cout << text("  collectives of TP: ", link(rates.collective), "; latency: ", device.collective_source, "\n");
}

}  // namespace

void inspect_cluster(const strategy::Cluster& cluster) {
  const cost::Rates rates = cost::rates_of(cluster);
  std::cout << text(cluster.name, ": cluster preset, ", cluster.gpus_per_node, " devices a node\n");
  if (cost::is_cpu(cluster)) {
    std::cout << text("  products: ", tera(rates.product_flops_per_ns), ", attention: forward ",
                      tera(rates.attention_forward_flops_per_ns), ", backward ",
                      tera(rates.attention_backward_flops_per_ns), "; assumed of a core: profile it\n");
  } else {
    print_kernels(cost::rates_of_devices(cluster), rates);
  }
  std::cout << text("  memory: ", rates.memory_bytes_per_ns, " GB/s; links in a node: ", link(rates.intra_node),
                    ", between nodes: ", link(rates.inter_node), " an adapter, to the host: ", link(rates.host),
                    "; data sheets, a fifth to a quarter taken off\n");
}

}  // namespace sluice::cli
