// Plans for devices as fast as they were measured, by figures that are made here.
#include "train/device_choosing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "learn/test_small_run.h"
#include "run/plan_ahead.h"
#include "train/test_training_loop.h"

namespace sluice::train {
namespace {

class MeasuredDevices : public TrainingLoop {
 protected:
  // A run, and so many steps in which its rank took `paces` times its plan.
  struct Watched {
    learn::OpenRun run;
    DeviceChoosing devices;
    int64_t step = 0;
    explicit Watched(const config::RunConfig& config)
        : run(config), devices(run->planning(), run->start().data(), run->engine(), run->control()) {}
    void steps(int64_t count, double pace) {
      for (int64_t i = 0; i < count; ++i) {
        run::RankStatus status;
        status.sample[watch::Figure::kSlowdown] = static_cast<int64_t>(1e6 * pace);
        devices.observe(step++, {}, {&status, 1});
      }
    }
    // The slowdown in hundredths that a step's plan has for the rank; 0: the planner without measurements.
    int percent_at(int64_t at) {
      const auto entry = run->planning().step_planners().at(at);
      if (entry == nullptr) return 0;
      return entry->planner.options().devices.front().slowdown_percent;
    }
  };
  config::RunConfig measured(const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings = {"parallel.devices=measured", "train.steps=500"};
    settings.insert(settings.end(), more.begin(), more.end());
    return config("run", settings);
  }
};

TEST_F(MeasuredDevices, EightStepsDecideAndStepsThatMayBePlannedStay) {
  Watched watched(measured());
  watched.steps(7, 1.5);
  EXPECT_EQ(watched.percent_at(400), 0);
  watched.steps(1, 1.5);
  const int64_t first = run::PlanAhead::first_unplanned(7);
  EXPECT_EQ(watched.percent_at(first - 1), 0);
  EXPECT_EQ(watched.percent_at(first), 150);
  EXPECT_EQ(watched.percent_at(400), 150);
}

TEST_F(MeasuredDevices, TheMedianCountsInStepsOfFive) {
  Watched watched(measured());
  watched.steps(3, 9);  // outliers
  watched.steps(5, 1.22);
  EXPECT_EQ(watched.percent_at(400), 120);
}

TEST_F(MeasuredDevices, RanksAsPlannedStayAsTheyAre) {
  Watched watched(measured());
  watched.steps(100, 1.01);
  EXPECT_EQ(watched.percent_at(400), 0);
}

// Measured again only under the new plans, relative to them, and over a longer window.
TEST_F(MeasuredDevices, LaterWindowsAreLongerAndRelativeToTheNewPlans) {
  Watched watched(measured());
  watched.steps(8, 1.5);
  const int64_t from = run::PlanAhead::first_unplanned(7);
  watched.steps(from - watched.step, 3);  // these were planned before
  watched.steps(15, 2);
  EXPECT_EQ(watched.percent_at(400), 150);
  watched.steps(1, 2);
  EXPECT_EQ(watched.percent_at(400), 300);
}

TEST_F(MeasuredDevices, NothingIsMeasuredUnlessAskedOrIfSlowRanksArePlannedFor) {
  for (const char* setting : {"parallel.devices=uniform", "watch.on_slow=plan"}) {
    Watched watched(measured({setting}));
    watched.steps(20, 1.5);
    EXPECT_EQ(watched.percent_at(400), 0) << setting;
  }
}

}  // namespace
}  // namespace sluice::train
