// For tests: a model so small that its figures can be checked by hand.
#pragma once

#include "cost/cost_model.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::cost {

inline CostModel::Options tiny_options(bool tied = false) {
  CostModel::Options options{.model = model::counted_outline(tied)};
  KindCost embedding, block, head;
  embedding.times = {Quadratic::from_ns(0, 1, 7), Quadratic::from_ns(0, 2, 8), {}};
  block = {{Quadratic::from_ns(0.5, 10, 100), Quadratic::from_ns(1, 20, 200), Quadratic::from_ns(0, 12, 50)},
           1000,
           500};
  head.times.forward = Quadratic::from_ns(0, 30, 9);
  options.kinds_by_tp[1] = {embedding, block, head};
  options.intra = {.latency_ns = 10, .bytes_per_s = 1'000'000'000};
  options.inter = {.latency_ns = 100, .bytes_per_s = 500'000'000};
  options.update_ps_per_element = 1500;
  options.memory = {.device_bytes = 10'000'000,
                    .element_bytes = 4,
                    .accumulator_bytes = 4,
                    .owner_bytes_per_parameter = 16,
                    .transient_bytes_per_token = 300,
                    .logits_chunk_bytes = 4000};
  return options;
}

// Embedding and the first two layers are frozen: a kind of their own, of the same times.
inline CostModel::Options tiny_options_with_frozen_start() {
  CostModel::Options options = tiny_options();
  model::freeze(options.model, {"model.embed_tokens", "model.layers.[01]"});
  std::vector<KindCost>& kinds = options.kinds_by_tp[1];
  kinds.insert(kinds.begin() + 1, kinds[1]);
  return options;
}

}  // namespace sluice::cost
