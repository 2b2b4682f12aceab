#include "learn/student_responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::learn {
namespace {

TEST(StudentResponses, TheirShareOfStepsIsSpreadEvenly) {
  const auto on_policy = [](double lmbda, int64_t steps) {
    std::vector<int64_t> found;
    for (int64_t step = 0; step < steps; ++step) {
      if (is_on_policy(step, lmbda)) found.push_back(step);
    }
    return found;
  };
  EXPECT_THAT(on_policy(0, 100), testing::IsEmpty());
  EXPECT_EQ(on_policy(1, 100).size(), 100U);
  EXPECT_THAT(on_policy(0.25, 12), testing::ElementsAre(3, 7, 11));
  for (const double lmbda : {0.1, 0.3, 0.5, 0.77}) {
    const std::vector<int64_t> steps = on_policy(lmbda, 1000);
    EXPECT_NEAR(static_cast<double>(steps.size()), 1000 * lmbda, 1) << lmbda;
    for (size_t i = 1; i < steps.size(); ++i)
      EXPECT_NEAR(static_cast<double>(steps[i] - steps[i - 1]), 1 / lmbda, 1) << lmbda;
  }
}

}  // namespace
}  // namespace sluice::learn
