// Time and bytes that the states of recurrent layers expose between lanes, by formulas alone, as tables in
// Markdown; bench/record.py scans writes them.
//
// The model is one layer's forward of a gated delta rule (hidden 2048, 16 key and 32 value heads of 128) and
// its MLP. Costs are analytic, for nodes of eight GPUs; a sequence is alone on its lanes. Two published ways
// are compared with Sluice's: every lane gathers every lane's state (LASP-2), or state and transition, as
// flash-linear-attention does for the delta rule.
//
//   scans_bench
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "cost/analytic.h"
#include "cost/exchange.h"
#include "model/outline.h"

namespace {

using namespace sluice;

model::Outline layer_shape() {
  model::Outline outline{.layers = 1,
                         .hidden = 2048,
                         .heads = 32,
                         .kv_heads = 32,
                         .head_dim = 64,
                         .ffn_hidden = 5632,
                         .vocab = 1024};
  outline.recurrent = {
      .key_heads = 16, .value_heads = 32, .key_width = 128, .value_width = 128, .convolution = 4};
  outline.block_types = {{.recurrent = true}};
  return outline;
}

struct Machine {
  cost::CostModel cost;
  cost::LinkTimes inter;
  int64_t state_bytes;
  int64_t transition_bytes;
};

Machine machine(const char* preset) {
  const model::Outline outline = layer_shape();
  const strategy::Cluster cluster = strategy::cluster_preset(preset, 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes, .element_bytes = 2};
  const std::vector<int> degrees = {1};
  const cost::CostModel cost(
      cost::analytic_options(outline, cost::rates_of(cluster), memory, degrees, cluster.gpus_per_node));
  const model::Recurrent& own = outline.recurrent;
  return {cost, cost.options().inter, cost.state_bytes({.tp = 1, .pp = 1}),
          own.value_heads * own.key_width * own.key_width * 4};
}

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

std::string rounded(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", microseconds(ns));
  return text;
}

// The time in which every lane receives `bytes` from each other lane, over the slowest link among them.
int64_t gather_ns(const Machine& on, int lanes, int64_t bytes) {
  const cost::LinkTimes& link = lanes <= 8 ? on.cost.options().intra : on.inter;
  return link.of_bytes((lanes - 1) * bytes);
}

void print_times(const char* preset) {
  const Machine on = machine(preset);
  const strategy::Scheme scheme{.tp = 1, .pp = 1, .cp = 256};
  const cost::Exchanges exchanges(scheme, on.cost);
  std::printf(
      "%s, a layer's forward in microseconds:\n\n"
      "| lanes | tokens a lane | it computes | scan | heads | nested | chosen | exposed, chosen | all-gather "
      "of states | "
      "of states and transitions | over all-gather "
      "|\n|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|\n",
      preset);
  for (const int64_t tokens : {16'384, 32'768}) {
    for (const int lanes : {1, 8, 16, 32, 64, 128, 256}) {
      const auto place = cost::LanePlace::aligned(lanes, 8);
      const cost::Work work = cost::Work::of_lane(tokens, tokens * lanes, lanes);
      const int64_t computes = on.cost.cell_ns(scheme, cost::CellKind::kForward, {1, 2}, work);
      const auto exposed = [&](int run) {
        const bool possible = run >= 1 && run <= exchanges.most_head_lanes() && lanes % run == 0;
        return possible ? rounded(exchanges.exposed(0, work, place, run).forward_ns) : "-";
      };
      const cost::Exchanges::StagePlace stage{0, place};
      const cost::ExchangeChoice choice =
          exchanges.cheapest(work, tokens, std::span(&stage, 1), int64_t{1} << 40);
      const int64_t chosen =
          lanes == 1 ? 0 : exchanges.exposed(0, work, place, choice.head_lanes(lanes)).forward_ns;
      const int64_t states = gather_ns(on, lanes, on.state_bytes);
      const int64_t both = gather_ns(on, lanes, on.state_bytes + on.transition_bytes);
      const double ratio = static_cast<double>(computes + states) / static_cast<double>(computes + chosen);
      std::printf("| %d | %lld | %.0f | %s | %s | %s | %s | %.1f %% | %.0f | %.0f | %.2f |\n", lanes,
                  static_cast<long long>(tokens), microseconds(computes),
                  lanes == 1 ? "-" : exposed(1).c_str(), lanes == 1 ? "-" : exposed(lanes).c_str(),
                  place.run > 1 && place.run < lanes ? exposed(place.run).c_str() : "-",
                  lanes == 1 ? "-" : strategy::name_of(choice.exchange),
                  100 * static_cast<double>(chosen) / static_cast<double>(computes),
                  lanes == 1 ? 0 : microseconds(states), lanes == 1 ? 0 : microseconds(both), ratio);
    }
  }
  std::printf("\n");
}

void print_bytes() {
  const Machine on = machine("h100x8");
  std::printf(
      "Bytes that all lanes send together for one sequence in one layer's forward, MiB, states in float:\n\n"
      "| lanes | scan | all-gather of states | of states and transitions |\n|---:|---:|---:|---:|\n");
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const int64_t lanes : {8, 64, 256}) {
    std::printf("| %lld | %.0f | %.0f | %.0f |\n", static_cast<long long>(lanes),
                mebibytes(2 * (lanes - 1) * on.state_bytes), mebibytes(lanes * (lanes - 1) * on.state_bytes),
                mebibytes(lanes * (lanes - 1) * (on.state_bytes + on.transition_bytes)));
  }
}

}  // namespace

int main() {
  for (const char* preset : {"h100x8", "a800x8"}) print_times(preset);
  print_bytes();
  return 0;
}
