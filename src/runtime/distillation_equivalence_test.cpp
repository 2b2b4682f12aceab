// A student of frozen teachers trains under any strategy as on one rank, by their divergences.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/outline.h"
#include "model/tuning.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

struct Case {
  std::string name;
  layers::Distillation distillation;
};
void PrintTo(const Case& own, std::ostream* stream) { *stream << own.name; }

// All models have the same vocabulary.
model::Outline smaller() {
  model::Outline outline = model::outline_of_odd_sizes();
  outline.layers = 4;  // as many stages may cut it
  outline.ffn_hidden -= 8;
  return outline;
}

// Wider and deeper than the student.
model::Outline larger() {
  model::Outline outline = model::outline_of_odd_sizes();
  outline.layers += 2;
  outline.hidden *= 2;
  outline.ffn_hidden += 16;
  return outline;
}

class EquivalenceOfDistillation : public testing::TestWithParam<Case> {
 protected:
  static RunOptions options() {
    RunOptions options;
    options.teachers = {larger()};
    if (GetParam().distillation.teachers.size() > 1) options.teachers.push_back(smaller());
    options.distillation = GetParam().distillation;
    options.loss_one_in = 2;
    return options;
  }
  static const RunRecord& one_rank() {
    static std::map<std::string, RunRecord> records;
    const auto [record, added] = records.try_emplace(GetParam().name);
    if (added) record->second = run_in_process(options());
    return record->second;
  }
  static void expect_as_one_rank(int world_size, std::vector<std::string> strategies,
                                 const std::vector<Plan>& plans) {
    RunOptions own = options();
    own.world_size = world_size;
    own.strategies = std::move(strategies);
    runtime::expect_as_one_rank(std::move(own), plans, one_rank());
  }
};

TEST_P(EquivalenceOfDistillation, TheStudentComesNearer) {
  EXPECT_GT(one_rank().losses.front(), 0);
  EXPECT_LT(one_rank().losses.back(), one_rank().losses.front());
}

TEST_P(EquivalenceOfDistillation, TensorParallel) { expect_as_one_rank(2, {"<2,1,1>"}, {dealt_plan}); }

// The teacher's stages are cut elsewhere than the student's.
TEST_P(EquivalenceOfDistillation, Stages) { expect_as_one_rank(4, {"<2,2,1>", "<1,4,1>"}, {dealt_plan}); }

TEST_P(EquivalenceOfDistillation, Lanes) {
  expect_as_one_rank(4, {"<1,1,4>", "<2,1,2>"}, {dealt_plan, ringed_plan, packed_plan});
}

TEST_P(EquivalenceOfDistillation, SharedParametersAndIdleRanks) {
  expect_as_one_rank(5, {"<1,1,4,4>", "<1,2,2,2>", "2x<2,1,1>"}, {dealt_plan, ringed_plan});
}

INSTANTIATE_TEST_SUITE_P(
    Of, EquivalenceOfDistillation,
    testing::Values(Case{"ForwardKl", {layers::Divergence::kForwardKl}},
                    Case{"ReverseKl", {layers::Divergence::kReverseKl}},
                    Case{"Jsd", {layers::Divergence::kJsd, 0.3, 2.0}},
                    Case{"MixedWithTargets", {.divergence = layers::Divergence::kReverseKl, .alpha = 0.4}},
                    // With two TP ranks the second has fewer of both models' rows than it has.
                    Case{"CommonRows", {.temperature = 2.0, .teachers = {{.entries = 50}}}},
                    // And none of them.
                    Case{"FewCommonRows", {.alpha = 0.5, .teachers = {{.entries = 25}}}},
                    Case{"TwoTeachers", {.alpha = 0.8, .teachers = {{0.7}, {0.3, 50}}}}),
    [](const auto& info) { return info.param.name; });

// A teacher in codes: TP, stages and lanes cut blocks, and FSDP gathers codes.
TEST(EquivalenceOfACodedTeacher, EveryStrategy) {
  RunOptions options;
  const model::BaseFormat nf4{base::WeightFormat::kNf4, 8};
  options.teachers = {model::coded(larger(), nf4, "teacher.base").outline(), smaller()};
  options.distillation.teachers = {{0.5}, {0.5}};
  const RunRecord one = run_in_process(options);
  RunOptions plain = options;
  plain.teachers.front() = larger();
  EXPECT_NE(run_in_process(plain).losses.front(), one.losses.front());
  options.world_size = 4;
  options.strategies = {"<2,2,1>", "<1,2,2,2>", "<1,1,4>"};
  expect_as_one_rank(options, {dealt_plan, ringed_plan}, one);
}

TEST(EquivalenceOfDistilledMemory, PoliciesChangeNothing) {
  RunOptions options;
  options.teachers = {larger()};
  options.world_size = 4;
  options.strategies = {"<1,2,2>"};
  expect_memory_policies_change_nothing(options);
}

TEST(EquivalenceOfDistillationCapped, CapsOfBothModelsCount) {
  RunOptions options;
  options.model.logit_cap = 3;
  options.teachers = {larger()};
  options.teachers.front().logit_cap = 5;
  const RunRecord one = run_in_process(options);
  options.world_size = 2;
  options.strategies = {"<2,1,1>"};
  expect_as_one_rank(options, {dealt_plan}, one);
}

}  // namespace
}  // namespace sluice::runtime
