// A small machine, model and corpus for the tests of this module.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cost/analytic.h"
#include "cost/memory_cost.h"
#include "cost/test_model.h"
#include "graph/build.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "strategy/cluster.h"
#include "study/system.h"

namespace sluice::study {

inline std::vector<int64_t> test_lengths(uint64_t seed, int64_t longest, int count = 40) {
  base::Rng rng(seed, 21);
  std::vector<int64_t> lengths = {longest};
  for (int i = 1; i < count; ++i) lengths.push_back(rng.between(10, 600));
  return lengths;
}

// 8 ranks; <1,1,1> holds a few thousand tokens; the context is a few hundred more, unless `context` is given.
inline SystemInputs test_inputs(int64_t context = 0) {
  const model::Outline outline = model::test_outline_of_8_heads();
  const std::vector<int> degrees = {1, 2, 4};
  SystemInputs inputs{.cluster = strategy::cluster_preset("local", 1),
                      .world_size = 8,
                      .cost = cost::CostModel(
                          cost::analytic_options(outline, {}, {.device_bytes = 128'000'000}, degrees, 4))};
  const int64_t one_rank = cost::MemoryCost(inputs.cost, {}).max_len_tokens(inputs.world_size);
  inputs.context_length = context > 0 ? context : one_rank + 200;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    inputs.sample_batches.push_back(test_lengths(seed, seed % 2 ? inputs.context_length : 700));
  }
  return inputs;
}

inline std::vector<strategy::Sequence> test_sequences(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (size_t i = 0; i < lengths.size(); ++i) {
    sequences.push_back({.document = static_cast<int64_t>(7 * i), .length_tokens = lengths[i]});
  }
  return sequences;
}

// Checks that the step's plans together hold every sequence once, that each is valid, and that each becomes a
// program that the verifier proves. Returns the last graph.
inline graph::StepGraph expect_runs_all(const SystemStep& step, std::vector<strategy::Sequence> sequences,
                                        const cost::CostModel& cost, int world_size) {
  const model::ParameterTable table = model::parameter_table(cost.options().model, cost.program());
  std::vector<strategy::Sequence> ran;
  const auto prove = [&](const strategy::StepPlan& plan) {
    strategy::validate(plan, world_size);
    ran.insert(ran.end(), plan.sequences.begin(), plan.sequences.end());
    return graph::build(plan, table, cost, world_size);
  };
  for (const strategy::StepPlan& plan : step.earlier) prove(plan);
  graph::StepGraph last = prove(step.plan);
  const auto key = [](const strategy::Sequence& s) { return std::pair(s.document, s.begin_token); };
  std::ranges::sort(ran, {}, key);
  std::ranges::sort(sequences, {}, key);
  EXPECT_EQ(ran, sequences);
  return last;
}

}  // namespace sluice::study
