// For tests: training runs compared with a run of a single rank.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/test_cluster.h"

namespace sluice::runtime {

// Losses, evaluated ones too, agree within `scalar_tolerance`. Gradient norms and parameters (relative to a
// tensor's largest) agree within `parameter_tolerance`.
void expect_equal(const RunRecord& run, const RunRecord& reference, double scalar_tolerance,
                  double parameter_tolerance);

// How far two runs may differ by rounding alone: at least 1e-11, and 64 times the distance of one-rank runs
// whose initial parameters differ by a unit in the last place. Families amplify rounding differently, because
// norms divide by the outputs of fresh weights, which are near 0. The tolerance is printed; a test fails if a
// family amplifies so much that a fault could hide in it.
struct Tolerance {
  double scalars = 0;
  double parameters = 0;
};
Tolerance tolerance_of(const RunOptions& one_rank, const RunRecord& reference);

// Under each plan the run equals the reference to 1e-11, and the bytes that lanes exchange and share are
// those of the formulas.
using Plan = decltype(RunOptions::plan);
void expect_as_one_rank(RunOptions options, const std::vector<Plan>& plans, const RunRecord& reference);

// Sums run in a fixed order, whichever part arrives first.
void expect_delays_change_nothing(RunOptions options);

// Recomputing, offloading and both give the bits of a run that keeps everything, and move as many bytes as
// the formulas.
void expect_memory_policies_change_nothing(RunOptions options);

RunRecord run(int world_size, std::vector<std::string> strategies, comm::DType dtype = comm::DType::kFloat64);

class Equivalence : public testing::Test {
 protected:
  static const RunRecord& one_rank();
  static void expect_as_one_rank(int world_size, std::vector<std::string> strategies);
  static void expect_as_one_rank(RunOptions options, const std::vector<Plan>& plans) {
    runtime::expect_as_one_rank(std::move(options), plans, one_rank());
  }
};

// Runs all sequences on all lanes, and rings over some lanes while others run whole sequences.
class EquivalenceOnLanes : public Equivalence {
 protected:
  static void expect_as_one_rank(int world_size, std::vector<std::string> strategies);
};

// Runs micro-batches of one and of many sequences that exchange as `exchanges` say.
class EquivalenceOfExchanges : public Equivalence {
 protected:
  // Heads over all lanes and over groups of two and three, and rings, alternately.
  static std::vector<LaneExchange> all();
  static void expect_as_one_rank(int world_size, std::vector<std::string> strategies,
                                 std::vector<LaneExchange> exchanges);
};

}  // namespace sluice::runtime
