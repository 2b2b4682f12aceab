#include "runtime/test_equivalence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace sluice::runtime {

void expect_equal(const RunRecord& run, const RunRecord& reference, double scalar_tolerance,
                  double parameter_tolerance) {
  ASSERT_EQ(run.losses.size(), reference.losses.size());
  for (size_t step = 0; step < run.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], reference.losses[step],
                scalar_tolerance * std::abs(reference.losses[step]));
    EXPECT_NEAR(run.gradient_norms[step], reference.gradient_norms[step],
                parameter_tolerance * reference.gradient_norms[step]);
  }
  ASSERT_EQ(run.mtp_losses.size(), reference.mtp_losses.size());
  for (size_t step = 0; step < run.mtp_losses.size(); ++step)
    EXPECT_NEAR(run.mtp_losses[step], reference.mtp_losses[step],
                scalar_tolerance * std::abs(reference.mtp_losses[step]));
  ASSERT_EQ(run.evaluated_losses.size(), reference.evaluated_losses.size());
  for (size_t i = 0; i < run.evaluated_losses.size(); ++i)
    EXPECT_NEAR(run.evaluated_losses[i], reference.evaluated_losses[i],
                scalar_tolerance * std::abs(reference.evaluated_losses[i]));
  for (const auto& [name, values] : reference.parameters) {
    double largest = 0;
    double difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - run.parameters.at(name)[i]));
    }
    EXPECT_LE(difference, parameter_tolerance * largest) << name;
  }
}

namespace {

double apart(const std::vector<double>& values, const std::vector<double>& reference, bool of_largest) {
  double largest = 0, most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - reference[i]);
    largest = std::max(largest, std::abs(reference[i]));
    most = std::max(most, of_largest ? difference : difference / std::abs(reference[i]));
  }
  return of_largest && largest > 0 ? most / largest : most;
}

}  // namespace

Tolerance tolerance_of(const RunOptions& one_rank, const RunRecord& reference) {
  constexpr double kLeast = 1e-11, kFactor = 64;
  Tolerance tolerance{kLeast, kLeast};
  for (const uint64_t nudge : {1, 2}) {
    RunOptions options = one_rank;
    options.nudge = nudge;
    const RunRecord nudged = run_in_process(options);
    for (const auto& [values, expected] : {std::pair(&nudged.losses, &reference.losses),
                                           {&nudged.evaluated_losses, &reference.evaluated_losses}})
      tolerance.scalars = std::max(tolerance.scalars, kFactor * apart(*values, *expected, false));
    tolerance.parameters = std::max(tolerance.parameters,
                                    kFactor * apart(nudged.gradient_norms, reference.gradient_norms, false));
    for (const auto& [name, values] : reference.parameters)
      tolerance.parameters =
          std::max(tolerance.parameters, kFactor * apart(nudged.parameters.at(name), values, true));
  }
  base::log_info(
      base::text("tolerance of losses ", tolerance.scalars, ", of parameters ", tolerance.parameters));
  // A family that amplifies a last digit further than this would hide faults.
  constexpr double kMostScalars = 1e-6, kMostParameters = 1e-4;
  EXPECT_LE(tolerance.scalars, kMostScalars);
  EXPECT_LE(tolerance.parameters, kMostParameters);
  return {std::min(tolerance.scalars, kMostScalars), std::min(tolerance.parameters, kMostParameters)};
}

void expect_as_one_rank(RunOptions options, const std::vector<Plan>& plans, const RunRecord& reference) {
  for (const Plan& plan : plans) {
    options.plan = plan;
    const RunRecord record = run_in_process(options);
    expect_equal(record, reference, 1e-11, 1e-11);
    EXPECT_EQ(record.exchange_bytes, record.expected_exchange_bytes);
    EXPECT_EQ(record.fsdp_bytes, record.expected_fsdp_bytes);
  }
}

void expect_delays_change_nothing(RunOptions options) {
  options.steps = 6;
  const RunRecord calm = run_in_process(options);
  options.max_delay_ns = 2'000'000;
  const RunRecord delayed = run_in_process(options);
  EXPECT_EQ(calm.losses, delayed.losses);
  EXPECT_EQ(calm.parameters, delayed.parameters);
}

void expect_memory_policies_change_nothing(RunOptions options) {
  using strategy::MemoryPolicy;
  options.policies = {{}};
  const RunRecord kept = run_in_process(options);
  for (const MemoryPolicy& policy : {MemoryPolicy{.recompute_permille = 1000},
                                     {.recompute_permille = 400},
                                     {.offload_permille = 300},
                                     {.recompute_permille = 650, .offload_permille = 450},
                                     {.recompute_permille = 1000, .offload_permille = 1000}}) {
    options.policies = {policy};
    const RunRecord run = run_in_process(options);
    EXPECT_EQ(run.losses, kept.losses);
    EXPECT_EQ(run.parameters, kept.parameters);
    EXPECT_EQ(run.exchange_bytes, run.expected_exchange_bytes);
  }
}

RunRecord run(int world_size, std::vector<std::string> strategies, comm::DType dtype) {
  RunOptions options;
  options.world_size = world_size;
  options.strategies = std::move(strategies);
  options.dtype = dtype;
  return run_in_process(options);
}

const RunRecord& Equivalence::one_rank() {
  static const RunRecord record = run(1, {"<1,1,1>"});
  return record;
}

void Equivalence::expect_as_one_rank(int world_size, std::vector<std::string> strategies) {
  expect_equal(run(world_size, std::move(strategies)), one_rank(), 1e-11, 1e-11);
}

void EquivalenceOnLanes::expect_as_one_rank(int world_size, std::vector<std::string> strategies) {
  RunOptions options;
  options.world_size = world_size;
  options.strategies = std::move(strategies);
  Equivalence::expect_as_one_rank(std::move(options), {ringed_plan, dealt_plan});
}

std::vector<LaneExchange> EquivalenceOfExchanges::all() {
  return {{.head_lanes = 0},
          {.head_lanes = 2},
          {.head_lanes = 1},
          {.head_lanes = 3},
          {.exchange = strategy::Exchange::kBalanced},
          {.exchange = strategy::Exchange::kQueries}};
}

void EquivalenceOfExchanges::expect_as_one_rank(int world_size, std::vector<std::string> strategies,
                                                std::vector<LaneExchange> exchanges) {
  RunOptions options;
  options.world_size = world_size;
  options.strategies = std::move(strategies);
  options.exchanges = std::move(exchanges);
  Equivalence::expect_as_one_rank(std::move(options), {dealt_plan, packed_plan});
}

}  // namespace sluice::runtime
