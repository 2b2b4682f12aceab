// One planner serves the planning threads of training, evaluation and
// embedding programs at once. The thread sanitizer watches this test.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

TEST(Planner, ThreadsThatShareItGetThePlansOfOneThread) {
  constexpr int kThreads = 4;
  constexpr int64_t kSteps = 8;
  PlannerOptions options{.world_size = 4};
  for (const char* text : {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>"}) {
    options.candidates.push_back(strategy::parse_strategy(text, 4));
  }
  const Planner planner(options, test_cost());
  const auto plan = [&](int64_t step) {
    base::Rng rng(static_cast<uint64_t>(step), 3);
    std::vector<strategy::Sequence> sequences;
    for (int64_t i = 0; i < 12; ++i) sequences.push_back({i, 0, rng.between(2, 900)});
    return strategy::to_json(planner.plan(step, sequences)).dump();
  };
  std::vector<std::vector<std::string>> found(kThreads);
  std::vector<std::thread> threads;
  for (std::vector<std::string>& plans : found) {
    threads.emplace_back([&] {
      for (int64_t step = 0; step < kSteps; ++step) plans.push_back(plan(step));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int64_t step = 0; step < kSteps; ++step) {
    for (const std::vector<std::string>& plans : found) {
      EXPECT_EQ(plans[static_cast<size_t>(step)], plan(step));
    }
  }
}

}  // namespace
}  // namespace sluice::plan
