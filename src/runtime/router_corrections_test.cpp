#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/test_cluster.h"

namespace sluice::runtime {
namespace {

constexpr int64_t kExperts = 8, kPerToken = 3;
constexpr double kRate = 1e-6;
constexpr float kCorrectionStep = 1e-4F;  // BF16's unit at 1 is 78 of them

// Corrections near 1 that differ between experts, in an order that differs between layers.
std::vector<float> near_one(int64_t layer) {
  std::vector<float> values;
  for (int64_t expert = 0; expert < kExperts; ++expert)
    values.push_back(1.0F + kCorrectionStep * static_cast<float>((5 * expert + 3 * layer) % kExperts));
  return values;
}

// Routers give all experts the same score, so the corrections choose.
RunOptions chosen_by_corrections(const std::string& strategy, int world_size) {
  RunOptions options;
  options.world_size = world_size;
  options.gpus_per_node = 2;
  options.dtype = comm::DType::kBFloat16;
  options.strategies = {strategy};
  options.steps = 1;
  options.moe_router_bias_update_rate = kRate;
  options.model.experts = {.count = kExperts, .per_token = kPerToken, .hidden = 9, .normalised = true};
  options.model.experts.sigmoid = options.model.experts.corrected = true;
  for (const model::Bucket& bucket : model::parameter_table(options.model).buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.name.ends_with(".router"))
        options.initial[parameter.name] = std::vector<float>(static_cast<size_t>(parameter.size()), 0.0F);
      if (parameter.name.ends_with(".router_correction"))
        options.initial[parameter.name] = near_one(bucket.layer);
    }
  }
  return options;
}

// A correction falls if its expert was visited more often than the mean one. Here these are the experts that
// all rows visit.
void expect_highest_visited(const RunOptions& options, const RunRecord& record) {
  int looked_at = 0;
  for (const auto& [name, given] : options.initial) {
    if (!name.ends_with(".router_correction")) continue;
    std::vector<float> highest = given;
    std::ranges::sort(highest, std::greater());
    for (size_t expert = 0; expert < given.size(); ++expert) {
      const bool visited = record.parameters.at(name)[expert] < given[expert];
      EXPECT_EQ(visited, given[expert] >= highest[kPerToken - 1]) << name << ", expert " << expert;
      ++looked_at;
    }
  }
  EXPECT_GE(looked_at, kExperts);
}

TEST(RouterCorrections, ChooseInFloatWhereLayersComputeInBfloat16) {
  const std::pair<const char*, int> clusters[] = {
      {"<1,1,1>", 1},   {"4x<1,1,1>", 4},           {"<2,1,1> + <1,2,1>", 4}, {"<1,1,3>", 3},
      {"<1,1,2,2>", 2}, {"<1,2,2,2> + <1,1,1>", 5}, {"<1,1,4,4,2>", 4}};
  for (const auto& [strategy, world_size] : clusters) {
    SCOPED_TRACE(strategy);
    const RunOptions options = chosen_by_corrections(strategy, world_size);
    expect_highest_visited(options, run_in_process(options));
  }
}

// Corrections of experts visited in the first step fall below whatever a router learns in it, so that no row
// visits these experts in the second.
TEST(RouterCorrections, AreThoseBehindTheNewestUpdate) {
  RunOptions options = chosen_by_corrections("2x<1,1,1>", 2);
  options.moe_router_bias_update_rate = 1;
  options.steps = 2;
  const RunRecord record = run_in_process(options);
  for (const auto& [name, given] : options.initial) {
    if (!name.ends_with(".router_correction")) continue;
    std::vector<float> highest = given;
    std::ranges::sort(highest, std::greater());
    for (size_t expert = 0; expert < given.size(); ++expert) {
      if (given[expert] < highest[kPerToken - 1]) continue;
      EXPECT_NEAR(record.parameters.at(name)[expert], given[expert], kCorrectionStep / 10)
          << name << ", " << expert;
    }
  }
}

}  // namespace
}  // namespace sluice::runtime
