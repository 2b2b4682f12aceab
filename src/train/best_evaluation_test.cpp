#include "train/best_evaluation.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace sluice::train {
namespace {

using Sets = std::vector<report::EvaluationMetrics>;

Sets of_loss(double loss) { return {{.validation_loss = loss, .targets = 10}}; }

TEST(BestEvaluation, LowestLossIsBestAndOthersAreCountedSince) {
  BestEvaluation best;
  EXPECT_FALSE(best.is_best());
  best.add(10, of_loss(3));
  EXPECT_TRUE(best.is_best());
  best.add(20, of_loss(3));  // no better
  EXPECT_FALSE(best.is_best());
  best.add(30, of_loss(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(best.since_best(), 2);
  best.add(40, of_loss(2));
  EXPECT_TRUE(best.is_best());
  EXPECT_EQ(best.best_step(), 40);
  EXPECT_EQ(best.since_best(), 0);
}

TEST(BestEvaluation, SetsCountByTheirTargetsAndRewardsBeforeLosses) {
  EXPECT_DOUBLE_EQ(
      *measure_of(Sets{{.validation_loss = 1, .targets = 30}, {.validation_loss = 5, .targets = 10}}), 2);
  EXPECT_DOUBLE_EQ(*measure_of(Sets{{.validation_loss = 1, .targets = 30, .reward = 0.25}, {.reward = 0.75}}),
                   -0.5);
  EXPECT_FALSE(measure_of(Sets{}));
  EXPECT_FALSE(measure_of(Sets{{.validation_loss = std::numeric_limits<double>::quiet_NaN(), .targets = 0}}));
}

TEST(BestEvaluation, GoesOnFromWhatACheckpointSays) {
  BestEvaluation best;
  EXPECT_TRUE(best.to_json().is_null());
  best.add(5, of_loss(2));
  best.add(10, of_loss(4));
  const BestEvaluation again(best.to_json(), "a checkpoint");
  EXPECT_EQ(again.to_json(), best.to_json());
  EXPECT_EQ(again.best_step(), 5);
  EXPECT_EQ(again.since_best(), 1);
  EXPECT_EQ(BestEvaluation(nullptr, "a checkpoint").best(), std::nullopt);
  EXPECT_THROW(BestEvaluation(base::Json{{"best", "low"}}, "a checkpoint"), base::InputError);
}

}  // namespace
}  // namespace sluice::train
