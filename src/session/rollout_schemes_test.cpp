#include "session/rollout_schemes.h"

#include <gtest/gtest.h>

#include "cost/analytic.h"
#include "cost/test_model.h"
#include "model/test_outline.h"

namespace sluice::session {
namespace {

config::RunConfig config_of() {
  config::RunConfig config;
  config.rl.algorithm = config::RlAlgorithm::kGrpo;
  config.rl.num_generations = 4;
  config.rl.max_completion_length = 800;
  config.data.context_length = 1000;
  return config;
}

TEST(ExpectedLoad, OfAFirstRolloutHasAllLengths) {
  const std::vector<int64_t> prompts{10, 500, 30};
  const std::vector<inference::RequestLengths> load = expected_load(config_of(), prompts);
  ASSERT_EQ(load.size(), 3);
  EXPECT_EQ(load[1].max_tokens, 500);
  EXPECT_EQ(load[0].output_lens, (std::vector<int64_t>{100, 400, 700, 200}));
  for (const int64_t said : load[1].output_lens) EXPECT_LE(said, 500);
}

TEST(ExpectedLoad, OfALaterOneHasThoseThatWereSaid) {
  const std::vector<int64_t> prompts{10, 20, 30};
  const std::vector<inference::RequestLengths> load =
      expected_load(config_of(), prompts, {{5, 6, 7, 900}, {0, 1}});
  EXPECT_EQ(load[1].output_lens, (std::vector<int64_t>{5, 6, 7, 800}));
  EXPECT_EQ(load[0].output_lens, (std::vector<int64_t>{1, 1, 1, 1}));
}

TEST(Saying, IsByThoseThatHoldTheModelBesideWhatTheyOwn) {
  cost::Rates rates;
  const int degrees[] = {1, 2, 4};
  const config::RunConfig config = config_of();
  const auto saying_with = [&](int64_t device_bytes) {
    const cost::CostModel cost(cost::analytic_options(model::test_outline_of_8_heads(), rates,
                                                      {.device_bytes = device_bytes}, degrees, 8));
    return rollout_schemes_of(config, cost, 8);
  };
  const auto cache = static_cast<int64_t>(config.rl.kv_cache_gib * 0x1p30);
  EXPECT_EQ(saying_with(cache + (int64_t{1} << 30)).schemes.front(), strategy::Scheme{});
  // Four megabytes of parameters, two owned: a rank with room for three holds half of them.
  const RolloutSchemes tight = saying_with(cache + 5'000'000);
  EXPECT_GT(tight.schemes.front().ranks(), 1);
  for (const strategy::Scheme& scheme : tight.schemes_of(2)) EXPECT_LE(scheme.ranks(), 2);
}

}  // namespace
}  // namespace sluice::session
