// FlexSP's own program for one micro-batch: groups of each size, of which some are used, and sequences to
// groups, so that the slowest group ends first. published/flex_sp.h searches locally instead. Of few
// sequences the program is solved. Of many a solver's time does not suffice at the sizes of the evaluation
// (127 virtual groups at 64 ranks), so what the search finds is held to a bound that every solution obeys:
// within a time T, groups of one size together take no more than their number times T, and no more than the
// ranks there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>

#include "base/rng.h"
#include "base/text.h"
#include "cbc_program.h"
#include "cost/shipped.h"
#include "published/flex_sp.h"

namespace sluice::tests {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::max();

struct Instance {
  std::string name;
  cost::CostModel cost;
  int ranks = 0;
  std::vector<int64_t> lengths;  // of one micro-batch, descending
};

double us(const published::FlexSpCost& cost, const cost::Work& work, int size) {
  return static_cast<double>(cost.time_ns(work, size)) / 1000;
}

// What a group takes whatever it has, latencies of its exchange included: the rest adds up sequence by
// sequence.
double constant_us(const published::FlexSpCost& cost, int size) { return us(cost, cost.work_of(2), size); }

// Least number of ranks that groups ending by `end_us` need: columns are how many groups of each size there
// are, and for each size the sequences that they have, `whole` ones or shares of them. Nothing where that was
// not proved in time.
std::optional<double> ranks_by(double end_us, std::span<const int64_t> lengths,
                               const published::FlexSpCost& cost, bool whole) {
  CbcProgram program;
  for (size_t s = 0; s < lengths.size(); ++s) program.add_row(1, 1);
  for (int size = 1; size <= cost.largest(); size *= 2) {
    const double fixed_us = constant_us(cost, size);
    const int time_row = program.add_row(-kInfinite, 0);
    const int room_row = program.add_row(-kInfinite, 0);
    program.add_column(size, 0, cost.ranks() / size, true);
    program.add(time_row, -std::max(0.0, end_us - fixed_us));
    program.add(room_row, -static_cast<double>(cost.capacity_tokens(size)));
    for (size_t s = 0; s < lengths.size(); ++s) {
      const double alone_us = us(cost, cost.work_of(lengths[s]), size);
      const auto tokens = static_cast<double>(published::tokens_on_lane(lengths[s], size));
      const bool can = alone_us <= end_us && tokens <= static_cast<double>(cost.capacity_tokens(size));
      program.add_column(0, 0, can ? 1 : 0, whole);
      program.add(static_cast<int>(s), 1);
      program.add(time_row, alone_us - fixed_us);
      program.add(room_row, tokens);
    }
  }
  const CbcProgram::Solution solution = program.solve({{"seconds", "2"}, {"ratioGap", "0"}});
  if (solution.infeasible) return kInfinite;
  return solution.optimal ? std::optional(solution.objective) : std::nullopt;
}

// No solution's slowest group ends sooner, but for times that round (a microsecond).
double bound_us(std::span<const int64_t> lengths, const published::FlexSpCost& cost, double found_us) {
  constexpr size_t kFew = 20;
  bool whole = lengths.size() <= kFew;
  double low = 0, high = found_us;
  while (high - low > found_us / 1000) {
    const double middle = (low + high) / 2;
    std::optional<double> ranks = ranks_by(middle, lengths, cost, whole);
    if (!ranks && whole) {
      whole = false;
      ranks = ranks_by(middle, lengths, cost, whole);
    }
    (ranks.value_or(0) <= cost.ranks() + 1e-6 ? high : low) = middle;
  }
  return low;
}

// The program itself, of groups that are each used or not. Columns: by group whether it is used, then the
// sequences that it has; the slowest group's time. Nothing where it was not solved in time.
std::optional<double> optimum_us(std::span<const int64_t> lengths, const published::FlexSpCost& cost) {
  std::vector<int> sizes;
  for (int size = 1; size <= cost.largest(); size *= 2)
    sizes.insert(sizes.end(), std::min(static_cast<size_t>(cost.ranks() / size), lengths.size()), size);
  CbcProgram program;
  for (size_t s = 0; s < lengths.size(); ++s) program.add_row(1, 1);
  std::vector<int> time_row, room_row, used_row;
  for (const int size : sizes) {
    time_row.push_back(program.add_row(-kInfinite, 0));
    room_row.push_back(program.add_row(-kInfinite, static_cast<double>(cost.capacity_tokens(size))));
    used_row.push_back(program.add_row(-kInfinite, 0));
  }
  const int ranks_row = program.add_row(-kInfinite, cost.ranks());
  for (size_t g = 0; g < sizes.size(); ++g) {
    const double fixed_us = constant_us(cost, sizes[g]);
    program.add_column(0, 0, 1, true);
    program.add(time_row[g], fixed_us);
    program.add(used_row[g], -static_cast<double>(lengths.size()));
    program.add(ranks_row, sizes[g]);
    for (size_t s = 0; s < lengths.size(); ++s) {
      program.add_column(0, 0, 1, true);
      program.add(static_cast<int>(s), 1);
      program.add(time_row[g], us(cost, cost.work_of(lengths[s]), sizes[g]) - fixed_us);
      program.add(room_row[g], static_cast<double>(published::tokens_on_lane(lengths[s], sizes[g])));
      program.add(used_row[g], 1);
    }
  }
  program.add_column(1, 0, kInfinite, false);
  for (const int row : time_row) program.add(row, -1);
  const CbcProgram::Solution solution = program.solve({{"seconds", "10"}, {"ratioGap", "0.0005"}});
  return solution.optimal ? std::optional(solution.objective) : std::nullopt;
}

std::vector<int64_t> lengths_of(const std::string& name) {
  std::ifstream file(std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path() / "bench/data" /
                     name);
  return {std::istream_iterator<int64_t>(file), {}};
}

// A micro-batch as the evaluation has them: of a batch of real lengths, cut at the context, one of the
// blaster's runs.
Instance instance(uint64_t seed) {
  base::Rng rng(seed);
  const std::vector<std::string> files{"wikipedia_lengths.txt", "code_lengths.txt", "system_lengths.txt"};
  const std::vector<std::string> models{"a800-7b", "a800-13b", "a800-32b"};
  const auto pick = [&](const auto& of) {
    return of[static_cast<size_t>(rng.between(0, std::ssize(of) - 1))];
  };
  const std::string file = pick(files), model = pick(models);
  const int ranks = 8 << rng.between(0, 3);
  const std::vector<int64_t> all = lengths_of(file);
  const int64_t context = pick(std::vector<int64_t>{16'384, 32'768});
  const int64_t tokens = rng.between(50'000, 200'000) * ranks / 64;
  std::vector<int64_t> lengths;
  for (int64_t sum = 0; sum < tokens || lengths.empty(); sum += lengths.back())
    lengths.push_back(std::min(std::max<int64_t>(2, pick(all)), context));
  std::ranges::sort(lengths, std::greater());
  const std::vector<size_t> ends = published::cut_evenly(lengths, static_cast<int>(rng.between(1, 4)));
  const size_t run = static_cast<size_t>(rng.between(0, std::ssize(ends) - 1));
  const size_t begin = run == 0 ? 0 : ends[run - 1];
  lengths = {lengths.begin() + static_cast<std::ptrdiff_t>(begin),
             lengths.begin() + static_cast<std::ptrdiff_t>(ends[run])};
  return {base::text(model, ", ", file, ", ", ranks, " ranks, ", lengths.size(), " sequences"),
          cost::CostModel(cost::shipped(model).options), ranks, std::move(lengths)};
}

// Over the instances that fit, of found over bound.
struct Gaps {
  int count = 0;
  double mean = 0;
  double worst = 0;
};
Gaps gaps_of(int instances, uint64_t seed) {
  Gaps gaps;
  for (uint64_t i = 0; gaps.count < instances; ++i) {
    const Instance of = instance(seed + i);
    const published::FlexSpCost cost({.scheme = {.cp = of.ranks, .share = of.ranks}}, of.cost, of.ranks);
    const auto found = published::best_groups(of.lengths, cost);
    if (!found) continue;
    const double found_us = static_cast<double>(found->time_ns) / 1000;
    constexpr size_t kSolved = 9;
    const std::optional<double> optimum =
        of.lengths.size() <= kSolved ? optimum_us(of.lengths, cost) : std::nullopt;
    const double bound = optimum.value_or(bound_us(of.lengths, cost, found_us));
    EXPECT_GE(found_us, bound * 0.999) << of.name;
    const double gap = found_us / bound - 1;
    if (gap > gaps.worst) {
      gaps.worst = gap;
      std::cout << base::text("worst so far: ", 100 * gap, " %: ", of.name, "\n");
    }
    gaps.mean = (gaps.mean * gaps.count + gap) / (gaps.count + 1);
    ++gaps.count;
  }
  std::cout << base::text(gaps.count, " instances: mean ", 100 * gaps.mean, " %, worst ", 100 * gaps.worst,
                          " %\n");
  return gaps;
}

// How far the bound is below the optimum depends on how much a solver proves in time: few instances say
// little of it.
TEST(FlexSpMilp, ASampleIsCloseToTheBoundInTheMean) { EXPECT_LT(gaps_of(6, 1).mean, 0.03); }
// In `make soak`, which keeps what it finds in the file $FLEX_SP_RESULTS.
TEST(FlexSpMilp, DISABLED_TwoHundredInstances) {
  const Gaps gaps = gaps_of(200, 1000);
  EXPECT_LT(gaps.mean, 0.01);
  const char* path = std::getenv("FLEX_SP_RESULTS");
  if (path == nullptr) return;
  char line[120];
  std::snprintf(line, sizeof line, "%d instances: %.1f %% above the bound in the mean, %.1f %% at most\n",
                gaps.count, 100 * gaps.mean, 100 * gaps.worst);
  std::ofstream(path)
      << "# FlexSP's stand-in beside its MILP\n\nMicro-batches of real lengths on 8 to 64 ranks, by three "
         "calibrations: the time that the local search finds over the\noptimum, where CBC proves it, else "
         "over a bound (`lab/milp/flex_sp_milp_test.cpp`). Command: `make soak`.\n\n"
      << line;
}

}  // namespace
}  // namespace sluice::tests
