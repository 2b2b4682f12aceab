// Shared by this module's tests: the machine that they plan for, and micro-steps of a scheduler's stages.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "cost/analytic.h"
#include "cost/cost_model.h"
#include "inference/scheduler.h"
#include "model/outline.h"

namespace sluice::inference {

// Twelve layers of hidden size 2,048: 1.2 GB in 16 bits.
inline model::Outline served_outline() {
  return {.layers = 12,
          .hidden = 2048,
          .heads = 16,
          .kv_heads = 8,
          .head_dim = 128,
          .ffn_hidden = 5504,
          .vocab = 32'000};
}

// Devices of 8 GB that read 2,000 bytes per nanosecond.
inline cost::CostModel test_machine(int64_t device_bytes = int64_t{8} << 30,
                                    const model::Outline& outline = served_outline()) {
  const cost::Rates rates{.product_flops_per_ns = 300e3,
                          .attention_forward_flops_per_ns = 200e3,
                          .attention_backward_flops_per_ns = 150e3,
                          .elementwise_bytes_per_ns = 2000,
                          .memory_bytes_per_ns = 2000,
                          .layer_overhead_ns = 30e3,
                          .collective = {.bytes_per_ns = 200, .latency_ns = 5e3},
                          .intra_node = {.bytes_per_ns = 200, .latency_ns = 5e3},
                          .inter_node = {.bytes_per_ns = 20, .latency_ns = 10e3}};
  std::vector<int> degrees;
  for (const int tp : {1, 2, 4, 8}) {
    if (model::tp_fault(outline, tp).empty()) degrees.push_back(tp);
  }
  return cost::CostModel(
      cost::analytic_options(outline, rates, {.device_bytes = device_bytes, .element_bytes = 2}, degrees, 8));
}

// Calls turn(scheduled tokens by stage) until nothing is in flight. `turn` appends the tokens that the last
// stage samples.
template <typename Turn>
void for_each_micro_step(Scheduler& scheduler, int stages, Turn turn) {
  std::deque<std::vector<ScheduledTokens>> by_stage(static_cast<size_t>(stages));
  while (true) {
    by_stage.pop_back();
    by_stage.push_front(scheduler.schedule());
    if (std::ranges::all_of(by_stage, &std::vector<ScheduledTokens>::empty)) return;
    turn(by_stage);
  }
}

}  // namespace sluice::inference
