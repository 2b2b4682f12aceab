// What exchanging keys and values, heads, or both exposes of one layer's forward, in microseconds, by the
// analytic costs of nodes of eight GPUs with TP 1: a sequence alone on its lanes, which begin with a node. In
// brackets the forward and backward together. "-": there are fewer heads than lanes, or no runs to nest.
//
//   exchanges_bench
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "cost/analytic.h"
#include "cost/exchange.h"

namespace {

using namespace sluice;

struct Setting {
  const char* name;
  const char* cluster;
  model::Shape shape;
};

model::Shape llama_8b() {
  model::Shape shape = model::named_shape("llama-7b");
  shape.kv_heads = 8;
  shape.ffn_hidden = 14'336;
  shape.vocab = 128'256;
  return shape;
}

cost::CostModel cost_of(const Setting& setting) {
  model::Shape shape = setting.shape;
  shape.layers = 1;
  const strategy::Cluster cluster = strategy::cluster_preset(setting.cluster, 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes, .element_bytes = 2};
  const std::vector<int> degrees = {1};
  return cost::CostModel(
      cost::analytic_options(shape, cost::rates_of(cluster), memory, degrees, cluster.gpus_per_node));
}

std::string cell(const cost::Exchanges::Exposed& exposed) {
  const auto microseconds = [](int64_t ns) { return (ns + 500) / 1000; };
  return base::text(microseconds(exposed.forward_ns), " (", microseconds(exposed.both_ns()), ")");
}

void print(const Setting& setting) {
  const cost::CostModel cost = cost_of(setting);
  const cost::Exchanges exchanges({.tp = 1, .pp = 1, .cp = 64}, cost);
  std::printf("\n%s\n%10s %6s %22s %22s %22s   %s\n", setting.name, "tokens", "lanes", "ring", "heads",
              "nested", "chosen");
  for (const int64_t length : {8'192, 16'384, 32'768, 131'072, 1'048'576}) {
    for (const int lanes : {4, 8, 12, 16, 32, 64}) {
      const auto place = cost::LanePlace::aligned(lanes, 8);
      const cost::Work work = cost::Work::of_lane((length + lanes - 1) / lanes, length, lanes);
      const bool has_heads = lanes <= setting.shape.heads;
      const bool nests = place.run > 1 && place.run < lanes;
      const cost::Exchanges::StagePlace stage{0, place};
      const cost::ExchangeChoice choice = exchanges.cheapest(work, std::span(&stage, 1), int64_t{1} << 40);
      std::printf("%10lld %6d %22s %22s %22s   %s\n", static_cast<long long>(length), lanes,
                  cell(exchanges.exposed(0, work, place, 1)).c_str(),
                  has_heads ? cell(exchanges.exposed(0, work, place, lanes)).c_str() : "-",
                  nests ? cell(exchanges.exposed(0, work, place, place.run)).c_str() : "-",
                  strategy::name_of(choice.exchange));
    }
  }
}

}  // namespace

int main() {
  print({"32B, every query with keys of its own, A800", "a800x8", model::named_shape("llama-32b")});
  print({"8B, four queries to a key head, A800", "a800x8", llama_8b()});
  print({"8B, four queries to a key head, H100", "h100x8", llama_8b()});
  return 0;
}
