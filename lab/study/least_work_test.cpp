#include "study/least_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cost/shipped.h"
#include "study/deepspeed.h"
#include "study/megatron.h"
#include "study/rival_traits.h"
#include "study/sluice_system.h"
#include "study/test_inputs.h"

namespace sluice::study {
namespace {

TEST(LeastWork, EachSequenceTakesItsCheapestScheme) {
  cost::CostModel::Options options = cost::shipped("a800-7b").options;
  // With one token, <2,1> is cheaper (10 against 12 ns over all ranks); with a thousand, <1,2>.
  options.scheme_times = {{{2, 1}, {.stage = cost::Quadratic::from_ns(0.5, 4.5, 7)}},
                          {{1, 2}, {.stage = cost::Quadratic::from_ns(0.25, 5.75, 7)}}};
  const std::vector<cost::CostModel> models = {cost::CostModel(options)};
  EXPECT_EQ(least_work_ns(std::vector<int64_t>{1}, models, 2), 5);
  EXPECT_EQ(least_work_ns(std::vector<int64_t>{1000}, models, 2), 255'750);
  EXPECT_EQ(least_work_ns(std::vector<int64_t>{1, 1000}, models, 2), 255'755);
}

TEST(LeastWork, NoSystemIsFaster) {
  const SystemInputs inputs = test_inputs();
  const std::vector<cost::CostModel> models = {inputs.cost};
  for (const auto make : {make_sluice, make_flexsp,
                          static_cast<std::unique_ptr<System> (*)(const SystemInputs&)>(make_megatron)}) {
    const auto system = make(inputs);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const std::vector<int64_t> lengths = test_lengths(seed, inputs.context_length);
      const SystemStep step = system->step(static_cast<int64_t>(seed), test_sequences(lengths));
      EXPECT_GE(step.before_ns + step.plan.estimated_ns, least_work_ns(lengths, models, inputs.world_size))
          << system->configuration();
    }
  }
}

}  // namespace
}  // namespace sluice::study
