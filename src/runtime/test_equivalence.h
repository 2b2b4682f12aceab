// For tests: training runs held to the one of a single rank.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/test_cluster.h"

namespace sluice::runtime {

// Losses, those of evaluations too, within `scalar_tolerance`, gradient norms and parameters (of the largest
// of a tensor) within `parameter_tolerance`.
void expect_equal(const RunRecord& run, const RunRecord& reference, double scalar_tolerance,
                  double parameter_tolerance);

// How far apart two runs may be that differ in nothing but rounding: at least 1e-11, and 64 times as far as
// runs of one rank whose initial parameters differ by a unit in the last place (norms divide by what fresh
// weights put out, which is near 0, so families amplify what sums in another order round differently).
// Printed; a test fails where a family amplifies so much that a fault could hide in it.
struct Tolerance {
  double scalars = 0;
  double parameters = 0;
};
Tolerance tolerance_of(const RunOptions& one_rank, const RunRecord& reference);

// Under each of the plans the run is the reference to 1e-11, and the bytes that lanes exchange and share are
// those of the formulas.
using Plan = decltype(RunOptions::plan);
void expect_as_one_rank(RunOptions options, const std::vector<Plan>& plans, const RunRecord& reference);

// Sums run in a fixed order, whatever arrives first.
void expect_delays_change_nothing(RunOptions options);

// Recomputing, offloading and both give the bits of a run that keeps everything, and move the formulas'
// bytes.
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

// Every sequence on every lane, and rings over some lanes while others run whole sequences.
class EquivalenceOnLanes : public Equivalence {
 protected:
  static void expect_as_one_rank(int world_size, std::vector<std::string> strategies);
};

// Micro-batches of one and of many sequences that exchange as `exchanges` say.
class EquivalenceOfExchanges : public Equivalence {
 protected:
  // Heads of all lanes, of groups of two and three, and rings, in turn.
  static std::vector<LaneExchange> all();
  static void expect_as_one_rank(int world_size, std::vector<std::string> strategies,
                                 std::vector<LaneExchange> exchanges);
};

}  // namespace sluice::runtime
