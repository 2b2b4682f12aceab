// The time that moving data exposes, by formulas alone, as tables in Markdown (bench/record.py exchanges).
//
// The first table has the microseconds that exchanging keys and values, heads, both, or queries exposes in a
// layer's forward; in brackets, forward and backward. Costs are analytic, for nodes of eight GPUs with TP 1;
// a sequence is alone on its lanes, which begin with a node. "-": fewer heads than lanes, or no runs to nest.
// The second table has the time of a pass whose lanes share parameters, over its computing time.
//
//   exchanges_bench
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "cost/analytic.h"
#include "cost/exchange.h"
#include "cost/pass_times.h"
#include "model/outline.h"

namespace {

using namespace sluice;

struct Setting {
  const char* name;
  const char* cluster;
  model::Outline model;
};

model::Outline llama_8b() {
  model::Outline outline = model::named_outline("llama-7b");
  outline.kv_heads = 8;
  outline.ffn_hidden = 14'336;
  outline.vocab = 128'256;
  return outline;
}

cost::CostModel cost_of(const Setting& setting) {
  model::Outline outline = setting.model;
  outline.layers = 1;
  const strategy::Cluster cluster = strategy::cluster_preset(setting.cluster, 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes, .element_bytes = 2};
  const std::vector<int> degrees = {1};
  return cost::CostModel(
      cost::analytic_options(outline, cost::rates_of(cluster), memory, degrees, cluster.gpus_per_node));
}

std::string cell(const cost::Exchanges::Exposed& exposed) {
  const auto microseconds = [](int64_t ns) { return (ns + 500) / 1000; };
  return base::text(microseconds(exposed.forward_ns), " (", microseconds(exposed.both_ns()), ")");
}

void print(const Setting& setting) {
  const cost::CostModel cost = cost_of(setting);
  const cost::Exchanges exchanges({.tp = 1, .pp = 1, .cp = 64}, cost);
  std::printf(
      "%s:\n\n| tokens | lanes | ring | heads | nested | balanced | queries | chosen |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---|\n",
      setting.name);
  for (const int64_t length : {8'192, 16'384, 32'768, 131'072, 1'048'576}) {
    for (const int lanes : {4, 8, 12, 16, 32, 64}) {
      const auto place = cost::LanePlace::aligned(lanes, 8);
      const cost::Work work = cost::Work::of_lane((length + lanes - 1) / lanes, length, lanes);
      const bool has_heads = lanes <= setting.model.heads;
      const bool nests = place.run > 1 && place.run < lanes;
      const cost::Exchanges::StagePlace stage{0, place};
      const cost::ExchangeChoice choice =
          exchanges.cheapest(work, (length + lanes - 1) / lanes, std::span(&stage, 1), int64_t{1} << 40);
      const auto travelling = [&](strategy::Exchange exchange) {
        return cell(exchanges.exposed(0, work, place, cost::ExchangeChoice{exchange}));
      };
      std::printf("| %lld | %d | %s | %s | %s | %s | %s | %s |\n", static_cast<long long>(length), lanes,
                  cell(exchanges.exposed(0, work, place, 1)).c_str(),
                  has_heads ? cell(exchanges.exposed(0, work, place, lanes)).c_str() : "-",
                  nests ? cell(exchanges.exposed(0, work, place, place.run)).c_str() : "-",
                  travelling(strategy::Exchange::kBalanced).c_str(),
                  travelling(strategy::Exchange::kQueries).c_str(), strategy::name_of(choice.exchange));
    }
  }
  std::printf("\n");
}

// Layers whose parameters are shared by the eight lanes of a node.
struct Gathered {
  const char* name;
  double flops_per_s;     // attained
  double bytes_per_s;     // per all-gather or reduce-scatter
  double gradient_bytes;  // per element, as summed
  int64_t kept = 1;       // blocks that stay at hand from the forward to the backward
};

// The time of a pass over the time of its computation.
double over_computing(const Gathered& setting, int64_t tokens) {
  constexpr int64_t kLayers = 60;
  constexpr double kParameters = 0.52e9;
  const auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  const auto moving = [&](double element_bytes) {
    return ns(kParameters * element_bytes * 7 / 8 / setting.bytes_per_s);
  };
  const int64_t forward = ns(2 * kParameters * static_cast<double>(tokens) / setting.flops_per_s);
  const int64_t gather = moving(2);
  const int64_t scatter = moving(setting.gradient_bytes);
  const int64_t gathered = kLayers - setting.kept;
  const std::vector<cost::FsdpOperations> pass = {
      {.count = kLayers, .compute_ns = kLayers * forward, .gather_ns = gather},
      {.count = setting.kept, .compute_ns = setting.kept * 2 * forward, .scatter_ns = scatter},
      {.count = gathered, .compute_ns = gathered * 2 * forward, .gather_ns = gather, .scatter_ns = scatter}};
  return static_cast<double>(cost::pass_ns(pass)) / static_cast<double>(3 * kLayers * forward);
}

void print_gathers() {
  const std::vector<Gathered> settings = {
      {"A800, FP32 scatters", 156e12, 160e9, 4},
      {"A800, BF16", 156e12, 160e9, 2},
      {"H100, FP32", 495e12, 360e9, 4},
      {"H100, BF16", 495e12, 360e9, 2},
      {"H100, FP32, eight blocks kept", 495e12, 360e9, 4, 8},
  };
  std::printf(
      "60 layers of 0.52 billion parameters, shared by eight lanes of a node, over computing alone:\n\n"
      "| tokens a rank |");
  for (const Gathered& setting : settings) std::printf(" %s |", setting.name);
  std::printf("\n|---:|---:|---:|---:|---:|---:|\n");
  for (const int64_t tokens : {3'125, 1'562, 1'024}) {
    std::printf("| %lld |", static_cast<long long>(tokens));
    for (const Gathered& setting : settings) std::printf(" %.3f |", over_computing(setting, tokens));
    std::printf("\n");
  }
}

}  // namespace

int main() {
  print({"32B, every query with keys of its own, A800", "a800x8", model::named_outline("llama-32b")});
  print({"8B, four queries to a key head, A800", "a800x8", llama_8b()});
  print({"8B, four queries to a key head, H100", "h100x8", llama_8b()});
  print_gathers();
  return 0;
}
