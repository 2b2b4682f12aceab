#include "plan/bound.h"

#include <gtest/gtest.h>

#include "cost/shipped.h"
#include "plan/planner.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

std::optional<Proof> bounded_by(const std::string& strategy, const std::vector<int64_t>& lengths) {
  constexpr int kRanks = 4;
  const Planner planner({.world_size = kRanks, .candidates = {strategy::parse_strategy(strategy, kRanks)}},
                        test_cost());
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
  return planner.plan(0, sequences).bounded_by;
}

TEST(Bound, OneSequenceIsBoundedByItsPath) { EXPECT_EQ(bounded_by("<1,4,1>", {1000}), Proof::kPath); }

TEST(Bound, ThreeEqualOnTwoPipelinesAreBoundedByThePigeonhole) {
  EXPECT_EQ(bounded_by("2x<1,1,1>", {900, 900, 900}), Proof::kPigeonhole);
}

TEST(Bound, TwoLongOnOnePipelineAreBoundedByTheirDispatch) {
  EXPECT_EQ(bounded_by("<1,4,1>", {1000, 500}), Proof::kLongest);
}

TEST(Bound, ManySequencesAreBoundedByPrices) {
  EXPECT_EQ(bounded_by("4x<1,1,1>", std::vector<int64_t>(200, 64)), Proof::kPrices);
}

// Each pipeline has one micro-batch, far from full, and pays its constant whole.
TEST(Bound, MicroBatchesThatAreNotFullPayTheWholeConstant) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme(strategy::parse_scheme("<1,1,1>"), cost, 4);
  const std::vector<int64_t> lengths(8, scheme.max_len_tokens() / 8);
  const std::vector<SchemeGroup> groups = {{&scheme, 4}};
  const int64_t pair_ns = scheme.micro_batch_work_ns(cost::Work::of(std::vector<int64_t>(2, lengths[0])), 1);
  const int64_t bound_ns = lower_bound(lengths, groups)->start_ns;
  EXPECT_LE(bound_ns, pair_ns);
  EXPECT_GE(bound_ns, pair_ns - 10);
}

// Next to nothing but constants of some nanoseconds: what is rounded has to be rounded down.
TEST(Bound, HoldsWhereRoundingIsMostOfAShare) {
  cost::CostModel::Options options = test_cost().options();
  for (cost::KindCost& kind : options.kinds_by_tp[2]) {
    const cost::Quadratic cell = cost::Quadratic::from_ns(0, 1e-6, 3);
    kind.times = {cell, cell, cell};
  }
  const cost::CostModel cost(options);
  const SchemeCost slow(strategy::parse_scheme("<1,1,1>"), cost, 4);
  const SchemeCost fast(strategy::parse_scheme("<2,1,1>"), cost, 4);
  const std::vector<SchemeGroup> groups = {{&slow, 2}, {&fast, 1}};
  const int64_t most = std::min(slow.max_len_tokens(), fast.max_len_tokens());
  for (int64_t count = 1; count <= 12; ++count) {
    const std::vector<int64_t> lengths(static_cast<size_t>(count), most / count);
    const int64_t together_ns = fast.micro_batch_work_ns(cost::Work::of(lengths), 1);
    EXPECT_LE(lower_bound(lengths, groups)->lower_ns, together_ns) << count;
  }
}

}  // namespace
}  // namespace sluice::plan
