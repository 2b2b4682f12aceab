#include "inference/expert_serving.h"

#include <gtest/gtest.h>

#include "model/outline.h"

namespace sluice::inference {
namespace {

// Thirty-two layers of sixteen experts, two a token: 26B parameters on devices of 40 GB.
model::Outline shape_of() {
  model::Outline outline{.layers = 32,
                         .hidden = 4096,
                         .heads = 32,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .ffn_hidden = 0,
                         .vocab = 32'000};
  outline.experts = {.count = 16, .per_token = 2, .hidden = 4096};
  return outline;
}

ServingMachine machine() {
  return {.rates = {.product_flops_per_ns = 400e3,
                    .attention_forward_flops_per_ns = 240e3,
                    .attention_backward_flops_per_ns = 180e3,
                    .elementwise_bytes_per_ns = 2500,
                    .memory_bytes_per_ns = 2500,
                    .layer_overhead_ns = 20e3,
                    .collective = {.bytes_per_ns = 300, .latency_ns = 4e3},
                    .intra_node = {.bytes_per_ns = 300, .latency_ns = 4e3},
                    .inter_node = {.bytes_per_ns = 40, .latency_ns = 8e3}},
          .device_bytes = int64_t{40} << 30};
}

constexpr Demand kDemand{
    .input_len = 500, .output_len = 200, .tpot_ns = 100'000'000, .disaggregated_prefill = true};

TEST(ExpertServer, SearchesLayoutsOfAllRanks) {
  const ExpertServer server(shape_of(), machine(), kDemand);
  int apart = 0;
  for (const auto& layouts : {server.expert_parallel_layouts(24), server.disaggregated_layouts(24)}) {
    for (const ExpertLayout& layout : layouts) {
      EXPECT_EQ(layout.ranks(), 24);
      EXPECT_EQ(16 % layout.expert_lanes, 0);
      EXPECT_GE(layout.attention_lanes, 1);
      apart += layout.disaggregated ? 1 : 0;
    }
  }
  EXPECT_GT(apart, 50);
}

TEST(ExpertServer, KeepsTimeAndMemory) {
  const ExpertServer server(shape_of(), machine(), kDemand);
  int served = 0;
  for (const ExpertLayout& layout : server.disaggregated_layouts(32)) {
    const ExpertServing serving = server.serve(layout);
    if (serving.sequences == 0) continue;
    ++served;
    EXPECT_LE(serving.engine_step_ns, kDemand.tpot_ns);
    EXPECT_LE(std::max(serving.attention_bytes, serving.expert_bytes), machine().device_bytes);
    const ExpertServing more = server.with_sequences(layout, serving.sequences + 1);
    EXPECT_TRUE(more.engine_step_ns > kDemand.tpot_ns ||
                std::max(more.attention_bytes, more.expert_bytes) > machine().device_bytes);
  }
  EXPECT_GT(served, 50);
}

// The claim of MegaScale-Infer: as many attention ranks as make both sides take equally long.
TEST(ExpertServer, BestApartIsNearBalance) {
  const ExpertServer server(shape_of(), machine(), kDemand);
  ExpertServing best;
  for (const ExpertLayout& layout : server.disaggregated_layouts(32)) {
    const ExpertServing serving = server.serve(layout);
    if (serving.sequences > 0 && serving.tokens_per_s() > best.tokens_per_s()) best = serving;
  }
  const LayerTimes& times = best.layers.front();
  const auto ratio = static_cast<double>(times.attention_ns) / static_cast<double>(times.experts_ns);
  EXPECT_GT(ratio, 0.4);
  EXPECT_LT(ratio, 2.5);
  EXPECT_GE(best.layout.micro_batches, 2);  // so that neither side waits for the other
}

TEST(ExpertServer, CountsAllParametersOnce) {
  const model::Outline outline = shape_of();
  const ExpertServer server(outline, machine(), kDemand);
  const ExpertLayout layout{
      .disaggregated = true, .attention_tp = 1, .attention_lanes = 1, .expert_lanes = 16};
  const ExpertServing serving = server.with_sequences(layout, 1);
  int64_t experts = 0;
  const model::Program program(outline);
  for (int64_t position = 0; position < program.size(); ++position) {
    for (const model::Parameter& parameter : program.kind_at(position).parameters())
      experts += parameter.experts > 0 ? 2 * parameter.size() : 0;
  }
  EXPECT_EQ(serving.expert_bytes * 16, experts);
}

}  // namespace
}  // namespace sluice::inference
