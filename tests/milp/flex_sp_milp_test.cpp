// FlexSP's own program for one micro-batch: virtual groups of each size, of which some are used, and
// sequences to groups, so that the slowest group ends first. published/flex_sp.h searches locally instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"
#include "cbc_program.h"
#include "cost/analytic.h"
#include "cost/test_model.h"
#include "published/flex_sp.h"

namespace sluice::tests {
namespace {

cost::CostModel small_machine() {
  const std::vector<int> degrees = {1};
  return cost::CostModel(
      cost::analytic_options(cost::small_shape(), {}, {.device_bytes = 128'000'000}, degrees, 4));
}

// In microseconds. Columns: by group whether it is used, then by group the sequences that it has; the slowest
// group.
double milp_us(std::span<const int64_t> lengths, const published::FlexSpCost& cost) {
  const double infinite = std::numeric_limits<double>::max();
  std::vector<int> sizes;
  for (int size = 1; size <= cost.largest(); size *= 2)
    sizes.insert(sizes.end(), static_cast<size_t>(cost.ranks() / size), size);
  const auto us = [&](int64_t length, int size) {
    return static_cast<double>(cost.time_ns({length, cost::Wide{length} * length}, size)) / 1000;
  };
  CbcProgram program;
  for (size_t s = 0; s < lengths.size(); ++s) program.add_row(1, 1);
  const auto count = static_cast<double>(lengths.size());
  std::vector<int> time_row, room_row, used_row;
  for (const int size : sizes) {
    time_row.push_back(program.add_row(-infinite, 0));
    room_row.push_back(program.add_row(-infinite, static_cast<double>(cost.capacity_tokens(size))));
    used_row.push_back(program.add_row(-infinite, 0));
  }
  const int ranks_row = program.add_row(-infinite, cost.ranks());
  for (size_t g = 0; g < sizes.size(); ++g) {
    program.add_column(0, 0, 1, true);
    program.add(time_row[g], us(0, sizes[g]));
    program.add(used_row[g], -count);
    program.add(ranks_row, sizes[g]);
    for (size_t s = 0; s < lengths.size(); ++s) {
      program.add_column(0, 0, 1, true);
      program.add(static_cast<int>(s), 1);
      program.add(time_row[g], us(lengths[s], sizes[g]) - us(0, sizes[g]));
      program.add(room_row[g], static_cast<double>(published::tokens_on_lane(lengths[s], sizes[g])));
      program.add(used_row[g], 1);
    }
  }
  program.add_column(1, 0, infinite, false);
  for (const int row : time_row) program.add(row, -1);
  const CbcProgram::Solution solution = program.solve({{"ratioGap", "0.001"}, {"seconds", "10"}});
  return solution.columns.empty() ? 0 : solution.objective;
}

TEST(FlexSpMilp, TheLocalSearchComesCloseToItsOptimum) {
  const cost::CostModel cost = small_machine();
  const published::FlexSpCost groups({.scheme = {.cp = 8, .share = 8}}, cost, 8);
  base::Rng rng(9);
  double total = 0;
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 10; ++i) lengths.push_back(rng.between(40, i < 2 ? 6000 : 1200));
    const auto found = published::best_groups(lengths, groups);
    ASSERT_TRUE(found);
    const double optimum_us = milp_us(lengths, groups);
    ASSERT_GT(optimum_us, 0);
    const double ratio = static_cast<double>(found->time_ns) / 1000 / optimum_us;
    EXPECT_GT(ratio, 0.97) << "round " << round;  // the program adds up times that round
    EXPECT_LT(ratio, 1.25) << "round " << round;
    total += ratio;
  }
  EXPECT_LT(total / kRounds, 1.06);
}

}  // namespace
}  // namespace sluice::tests
