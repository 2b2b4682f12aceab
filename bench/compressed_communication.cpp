// The gain from sending gradients between nodes with fewer bits, by analytic costs alone, as a table in
// Markdown. bench/record.py compressed_communication writes it.
//
// Whole steps are timed by the clock for each model, number of GPUs and speed between nodes, with each codec
// and without. One strategy is data parallelism with nodes as replicas: parameters are shared inside a node,
// pulled and pushed between nodes. The other one is what planning would choose instead, one copy over all
// lanes. Times include coding, as cost/analytic.h assumes it.
//
// SDP4Bit's claim is compared with its sharded data parallelism: each GPU is a replica of a model of 6.7B
// parameters, of which it owns a part, on sequences of one length.
//
//   compressed_communication_bench [LENGTHS]
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cost/analytic.h"
#include "graph/build.h"
#include "inputs.h"
#include "model/outline.h"
#include "plan/batch_sample.h"
#include "plan/planner.h"
#include "session/candidates.h"
#include "strategy/wire_codec.h"

namespace {

using namespace sluice;
using strategy::Codec;

constexpr int64_t kContextTokens = 23'552;  // lanes of a node hold llama-32b's beside all buffers
constexpr int64_t kTokensOfRank = 4096;
constexpr int kBatches = 4;
constexpr double kGigabytes[] = {50, 20, 10, 3};

struct Setting {
  const char* model;
  int ranks;
  const char* cluster = "h100x8";
};
constexpr Setting kSettings[] = {{"llama-7b", 64}, {"llama-7b", 128}, {"llama-32b", 64}, {"llama-32b", 128}};

// Another model of 6.7B parameters in place of GPT's.
constexpr Setting kSharded{"llama-7b", 128, "a800x8"};
constexpr int64_t kShardedLength = 2048;
constexpr int64_t kSequencesOfGpu[] = {1, 4};
constexpr double kShardedGigabytes[] = {20, 3, 1.5, 0.75};

struct Column {
  const char* name;
  strategy::WireCodecs codecs;
};
constexpr strategy::LevelCodecs kNarrow{Codec::kBFloat16, Codec::kBFloat16}, kOf8{Codec::kInt8, Codec::kInt8},
    kOf8And4{Codec::kInt8, Codec::kInt4};
// Codecs of pushes and pulls for replicas, of sums and gathers for shared parameters.
constexpr Column kReplicas[] = {
    {"as they are", {}},
    {"push bfloat16", {.push = kNarrow, .sums = kNarrow}},
    {"push 8 bits", {.push = kOf8, .sums = kOf8}},
    {"push 8 and 4", {.push = kOf8And4, .sums = kOf8And4}},
    {"… and pull 4-bit differences",
     {.pull = strategy::PullCodec::kInt4Difference, .push = kOf8And4, .sums = kOf8And4}}};
constexpr Column kShared[] = {{"as they are", {}},
                              {"sums bfloat16", {.sums = kNarrow}},
                              {"sums 8 and 4 bits", {.sums = kOf8And4}},
                              {"… and gather 8 bits", {.sums = kOf8And4, .gather = Codec::kInt8}}};

cost::CostModel::Options costs_of(const Setting& setting, double gigabytes) {
  const strategy::Cluster cluster = strategy::cluster_preset(setting.cluster, setting.ranks / 8);
  const cost::AnalyticMemory memory{.device_bytes = cluster.device_memory_bytes / 10 * 9,
                                    .element_bytes = 2,
                                    .host_bytes = cost::host_bytes_of(cluster)};
  const std::vector<int> degrees = {1, 2, 4, 8};
  cost::CostModel::Options options = cost::analytic_options(
      model::named_outline(setting.model), cost::rates_of(cluster), memory, degrees, cluster.gpus_per_node);
  options.inter.bytes_per_s = static_cast<int64_t>(gigabytes * 1e9);
  return options;
}

std::vector<std::vector<int64_t>> batches_of(const std::vector<int64_t>& lengths, int ranks) {
  return plan::stratified_batches(
      lengths, {.tokens_per_step = ranks * kTokensOfRank, .batches = kBatches, .seed = 11});
}

// The mean step. Plans do not depend on the codec.
double step_ms(const std::vector<strategy::StepPlan>& plans, const cost::CostModel& cost, int ranks) {
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  double sum = 0;
  for (const strategy::StepPlan& plan : plans)
    sum += static_cast<double>(
        graph::build(plan, table, cost, ranks, {.disabled_passes = {"verify"}}).makespan_ns);
  return sum / 1e6 / static_cast<double>(plans.size());
}

std::vector<strategy::StepPlan> plans_of(const plan::Planner& planner,
                                         const std::vector<std::vector<int64_t>>& batches) {
  std::vector<strategy::StepPlan> plans;
  for (const std::vector<int64_t>& batch : batches)
    plans.push_back(planner.plan(0, plan::sequences_of(batch)));
  return plans;
}

plan::Planner planner_of(const cost::CostModel& cost, int ranks, std::vector<strategy::Strategy> candidates) {
  return plan::Planner({.world_size = ranks, .candidates = std::move(candidates)}, cost);
}

// Each codec gets its own plans, because codecs take memory, too.
template <size_t kCount>
void print_columns(const Column (&columns)[kCount], const std::string& strategy,
                   const std::vector<std::vector<int64_t>>& batches, const cost::CostModel& cost, int ranks) {
  double wide = 0;
  for (const Column& column : columns) {
    cost::CostModel::Options options = cost.options();
    options.codecs = column.codecs;
    const cost::CostModel of_column = cost.with(options);
    const double ms =
        step_ms(plans_of(planner_of(of_column, ranks, {strategy::parse_strategy(strategy, ranks)}), batches),
                of_column, ranks);
    if (column.codecs == strategy::WireCodecs{}) {
      wide = ms;
      std::printf(" %.0f |", ms);
    } else {
      std::printf(" %.0f (%.2f) |", ms, wide / ms);
    }
  }
}

void print_row(const Setting& setting, double gigabytes, const std::vector<int64_t>& lengths) {
  const cost::CostModel cost(costs_of(setting, gigabytes));
  const auto batches = batches_of(lengths, setting.ranks);
  const std::string by_nodes = base::text(setting.ranks / 8, "x<1,1,8,8>"),
                    shared = base::text("1x<1,1,", setting.ranks, ",", setting.ranks, ">");
  std::printf("| %s | %d | %.0f |", setting.model, setting.ranks, gigabytes);
  print_columns(kReplicas, by_nodes, batches, cost, setting.ranks);
  print_columns(kShared, shared, batches, cost, setting.ranks);
  std::printf("\n");
  std::fflush(stdout);
}

template <size_t kCount>
void print_head(const Column (&columns)[kCount], const char* prefix) {
  for (const Column& column : columns) std::printf(" %s%s |", prefix, column.name);
}

void print_mixed(const std::vector<int64_t>& lengths) {
  std::printf(
      "H100s, eight a node, %lld tokens a rank, context %lld; milliseconds, and over what travels as "
      "it is:\n\n",
      static_cast<long long>(kTokensOfRank), static_cast<long long>(kContextTokens));
  std::printf("| model | GPUs | GB/s of an adapter |");
  print_head(kReplicas, "replicas: ");
  print_head(kShared, "shared: ");
  std::printf("\n|---|---:|---:|");
  for (size_t i = 0; i < std::size(kReplicas) + std::size(kShared); ++i) std::printf("---:|");
  std::printf("\n");
  for (const Setting& setting : kSettings) {
    for (const double gigabytes : kGigabytes) print_row(setting, gigabytes, lengths);
  }
}

void print_sharded() {
  std::printf("\n%d A800s, eight a node, each a replica of %s, sequences of %lld tokens:\n\n", kSharded.ranks,
              kSharded.model, static_cast<long long>(kShardedLength));
  std::printf("| sequences a GPU | GB/s of an adapter |");
  print_head(kReplicas, "");
  std::printf("\n|---:|---:|");
  for (size_t i = 0; i < std::size(kReplicas); ++i) std::printf("---:|");
  std::printf("\n");
  for (const int64_t sequences : kSequencesOfGpu) {
    const std::vector<int64_t> batch(static_cast<size_t>(kSharded.ranks * sequences), kShardedLength);
    for (const double gigabytes : kShardedGigabytes) {
      std::printf("| %lld | %g |", static_cast<long long>(sequences), gigabytes);
      print_columns(kReplicas, base::text(kSharded.ranks, "x<1,1,1>"), {batch},
                    cost::CostModel(costs_of(kSharded, gigabytes)), kSharded.ranks);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<int64_t> lengths =
      bench::read_lengths(argc > 1 ? argv[1] : "bench/data/system_lengths.txt", 1, kContextTokens);
  print_mixed(lengths);
  print_sharded();
  return 0;
}
