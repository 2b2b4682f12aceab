// Lanes that share parameters train as one rank does, whichever exchanges they use.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cost/fsdp_cost.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

// Whole sequences and rings, within share groups and across them, and lanes that are idle in some passes.
class EquivalenceOfShares : public EquivalenceOnLanes {};

TEST_F(EquivalenceOfShares, TwoLanes) { expect_as_one_rank(2, {"<1,1,2,2>"}); }
TEST_F(EquivalenceOfShares, TwoGroupsAndUnitsAcrossThem) { expect_as_one_rank(4, {"<1,1,4,2>"}); }
TEST_F(EquivalenceOfShares, FourLanes) { expect_as_one_rank(4, {"<1,1,4,4>"}); }
TEST_F(EquivalenceOfShares, PartsThatDifferInSize) { expect_as_one_rank(5, {"<1,1,5,5>"}); }
TEST_F(EquivalenceOfShares, WithTensorParallelism) { expect_as_one_rank(6, {"<2,1,3,3>"}); }
TEST_F(EquivalenceOfShares, WithPipelineParallelism) { expect_as_one_rank(4, {"<1,2,2,2>"}); }
TEST_F(EquivalenceOfShares, WithBoth) { expect_as_one_rank(8, {"<2,2,2,2>"}); }
TEST_F(EquivalenceOfShares, BesideOnesThatDoNot) { expect_as_one_rank(6, {"<1,1,4,4> + 2x<1,1,1>"}); }
TEST_F(EquivalenceOfShares, WithIdleRanks) { expect_as_one_rank(6, {"<1,1,4,2>"}); }
TEST_F(EquivalenceOfShares, SwitchingEveryStep) {
  expect_as_one_rank(
      4, {"<1,1,4,4>", "4x<1,1,1>", "<1,1,4,2>", "<2,1,2,2>", "<1,2,2,2>", "<2,2,1>", "<1,1,2,2> + <1,1,2>"});
}

// One, three and eight micro-batches on the three lanes of a group.
TEST_F(EquivalenceOfShares, LanesWithoutWork) {
  RunOptions options;
  options.sequences = 10;
  const RunRecord reference = run_in_process(options);
  options.plan = uneven_plan;
  for (const char* strategy : {"<1,1,3,3>", "<1,2,3,3>"}) {
    options.strategies = {strategy};
    options.world_size = strategy::parse_strategy(strategy, 6).ranks();
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
  }
}

// A plan on two share groups of two lanes. The first group has three passes, the second one. Then a ring on
// one lane of either ties the groups into a pass; the remaining sequences follow.
strategy::StepPlan ring_behind_uneven_groups(int64_t step, const std::vector<strategy::Sequence>& sequences,
                                             const strategy::Strategy& strategy, int64_t max_tokens) {
  strategy::StepPlan plan{.step = step, .sequences = sequences};
  plan.pipelines.push_back({strategy.pipelines.front(), max_tokens, {}});
  const auto longest = std::ranges::max_element(sequences, {}, &strategy::Sequence::length_tokens);
  std::vector<strategy::PipelineMicroBatch>& micro_batches = plan.pipelines[0].micro_batches;
  const auto whole = [&](size_t i, int lane) {
    const auto sequence = static_cast<int32_t>(i);
    if (sequences.begin() + sequence == longest) return;
    micro_batches.push_back({.first_lane = lane, .sequences = {{sequence, sequences[i].length_tokens}}});
  };
  for (size_t i = 0; i < 5; ++i) whole(i, i < 3 ? 0 : 2);
  const auto shared = static_cast<int32_t>(longest - sequences.begin());
  micro_batches.push_back({.first_lane = 1, .lanes = 2, .sequences = {{shared, longest->length_tokens}}});
  for (size_t i = 5; i < sequences.size(); ++i) whole(i, static_cast<int>(i) % 4);
  micro_batches = strategy::in_injection_order(std::move(micro_batches), 4);
  return plan;
}

TEST_F(EquivalenceOfShares, RingAcrossGroupsWhoseEarlierPassesDifferInNumber) {
  for (const char* strategy : {"<1,1,4,2>", "<2,1,4,2>", "<1,2,4,2>"}) {
    RunOptions options;
    options.strategies = {strategy};
    options.world_size = strategy::parse_strategy(strategy, 8).ranks();
    Equivalence::expect_as_one_rank(std::move(options), {ring_behind_uneven_groups});
  }
}

TEST_F(EquivalenceOfShares, TiedEmbeddings) {
  RunOptions options;
  options.model.tie_embeddings = true;
  const RunRecord reference = run_in_process(options);
  options.world_size = 4;
  options.strategies = {"<1,1,4,2>", "<1,2,2,2>", "<2,1,2,2>", "<1,1,4,4>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// Only transfers are rounded: sums and accumulators are FP32, and half as many bytes travel.
TEST_F(EquivalenceOfShares, GradientsTravelInBFloat16) {
  RunOptions options;
  options.dtype = comm::DType::kFloat32;
  const RunRecord reference = run_in_process(options);
  options.world_size = 4;
  options.strategies = {"<1,1,4,4>", "<1,2,2,2>"};
  const RunRecord wide = run_in_process(options);
  options.codecs.sums = {strategy::Codec::kBFloat16, strategy::Codec::kBFloat16};
  const RunRecord narrow = run_in_process(options);
  ASSERT_EQ(narrow.losses.size(), reference.losses.size());
  for (size_t step = 0; step < narrow.losses.size(); ++step) {
    EXPECT_NEAR(narrow.losses[step], reference.losses[step], 3e-3 * reference.losses[step]);
  }
  EXPECT_NEAR(narrow.gradient_norms[0], reference.gradient_norms[0], 1e-3 * reference.gradient_norms[0]);
  EXPECT_EQ(narrow.fsdp_bytes, narrow.expected_fsdp_bytes);
  for (size_t step = 0; step < wide.fsdp_bytes.size(); ++step)
    EXPECT_LT(narrow.fsdp_bytes[step], wide.fsdp_bytes[step]);
}

TEST_F(EquivalenceOfShares, TwoLevelLinks) {
  RunOptions options;
  options.world_size = 6;
  options.gpus_per_node = 2;
  options.strategies = {"<1,1,4,2> + <1,1,2>", "<1,1,6,3>", "<1,1,4,4> + 2x<1,1,1>"};
  expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
}

// Gradients are summed in runs of the lanes of a node, then between runs. Cases: two and three nodes, parts
// of different size, idle lanes and runs, tied embeddings, groups that straddle nodes unevenly.
TEST_F(EquivalenceOfShares, SumsInNodesBeforeThoseBetweenThem) {
  for (const bool tied : {false, true}) {
    RunOptions options;
    options.model.tie_embeddings = tied;
    options.model.layers = 4;
    const RunRecord reference = run_in_process(options);
    options.world_size = 6;
    options.gpus_per_node = 2;
    options.strategies = {"<1,1,4,4> + <1,1,2,2>", "<1,1,6,6>", "<1,1,4,4>", "<1,1,3,3> + <1,1,3,3>"};
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
    options.plan = uneven_plan;
    options.strategies = {"<1,1,6,6>"};
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
  }
}

// The embedding and the head are large enough to travel in pieces.
TEST_F(EquivalenceOfShares, SumsInNodesInPieces) {
  for (const bool tied : {false, true}) {
    RunOptions options;
    options.model.tie_embeddings = tied;
    options.model.vocab = 8192;
    const RunRecord reference = run_in_process(options);
    options.world_size = 6;
    options.gpus_per_node = 2;
    options.strategies = {"<1,1,6,6>", "<1,1,4,4> + <1,1,2,2>"};
    for (const int holders : {6, 4})
      ASSERT_GT(cost::last_pieces({}, options.model.vocab * options.model.hidden / holders), 1);
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
    options.plan = uneven_plan;
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
  }
}

TEST_F(EquivalenceOfShares, SumsInNodesUnderTensorAndPipelineParallelism) {
  RunOptions options;
  options.world_size = 8;
  options.gpus_per_node = 4;
  options.strategies = {"<2,1,4,4>", "<1,1,8,8>", "<1,1,8,8>"};
  expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
  options.gpus_per_node = 2;
  options.strategies = {"<1,2,4,4>", "<1,1,8,8>"};
  expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
}

TEST_F(EquivalenceOfShares, RandomDelaysChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.strategies = {"<1,1,4,4>", "<1,1,4,2>", "<1,2,2,2>", "<2,1,2,2>"};
  expect_delays_change_nothing(std::move(options));
}

// Cells that are cut by layers, for copies to host memory, pass gathered parameters on.
TEST_F(EquivalenceOfShares, RecomputingAndOffloadingChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 4;
  options.max_tokens = 64;
  options.model.layers = 8;
  options.strategies = {"<1,1,4,4>", "<1,2,2,2>", "<1,1,4,2>"};
  expect_memory_policies_change_nothing(std::move(options));
}

// On the fullest rank. A cell counts its fullest window on top of all activations that it begins with. So on
// ranks with little else, predictions exceed the measured peak by up to two layers' gradients.
TEST_F(EquivalenceOfShares, PeakBytesAreThePredictedOnes) {
  RunOptions options;
  options.steps = 2;
  options.model.layers = 8;
  options.max_tokens = 600;
  options.sequences = 100;
  options.world_size = 4;
  using strategy::Codec;
  const strategy::WireCodecs as_it_is, sums{.sums = {Codec::kInt8, Codec::kInt4}},
      gathers{.gather = Codec::kInt8};
  struct Case {
    const char* strategy;
    int gpus_per_node;
    strategy::WireCodecs codecs;
  };
  const Case cases[] = {{"<1,1,4,4>", 8, as_it_is}, {"<1,1,4,4>", 2, as_it_is}, {"<1,1,4,2>", 8, as_it_is},
                        {"<1,2,2,2>", 8, as_it_is}, {"<2,1,2,2>", 8, as_it_is}, {"<1,1,4,4>", 8, sums},
                        {"<1,1,4,4>", 2, sums},     {"<1,2,2,2>", 8, sums},     {"<1,1,4,4>", 8, gathers}};
  for (const auto& [strategy, gpus_per_node, codecs] : cases) {
    options.strategies = {strategy};
    options.gpus_per_node = gpus_per_node;
    options.codecs = codecs;
    const RunRecord run = run_in_process(options);
    for (size_t step = 0; step < run.peak_bytes.size(); ++step) {
      const auto predicted = static_cast<double>(std::ranges::max(run.predicted_peak_bytes[step]));
      EXPECT_NEAR(static_cast<double>(std::ranges::max(run.peak_bytes[step])), predicted, 0.05 * predicted)
          << strategy << ", step " << step;
      for (size_t rank = 0; rank < run.peak_bytes[step].size(); ++rank)
        EXPECT_LE(run.peak_bytes[step][rank], run.predicted_peak_bytes[step][rank])
            << strategy << ", rank " << rank;
    }
  }
}

// Micro-batches of one and of many sequences that exchange heads, within share groups and across them. Twelve
// heads are uneven over 5, 7 and 8 lanes; six key heads are uneven over 4 as well.
class EquivalenceOfSharesAndExchanges : public EquivalenceOfExchanges {
 protected:
  static std::vector<LaneExchange> heads() { return {{.head_lanes = 0}}; }
};

class HeadsOfOneGroup : public EquivalenceOfSharesAndExchanges, public testing::WithParamInterface<int> {};
TEST_P(HeadsOfOneGroup, AsOneRank) {
  expect_as_one_rank(GetParam(), {base::text("<1,1,", GetParam(), ",", GetParam(), ">")}, heads());
}
INSTANTIATE_TEST_SUITE_P(TwoToEight, HeadsOfOneGroup, testing::Values(2, 5, 7, 8),
                         [](const auto& info) { return base::text(info.param, "Lanes"); });

TEST_F(EquivalenceOfSharesAndExchanges, HeadsAcrossGroups) {
  expect_as_one_rank(6, {"<1,1,6,2>", "<1,1,6,3>"}, heads());
}
TEST_F(EquivalenceOfSharesAndExchanges, Nested) {
  expect_as_one_rank(8, {"<1,1,8,4>", "<1,1,8,8>", "<1,1,8,2>"}, {{.head_lanes = 4}, {.head_lanes = 2}});
  expect_as_one_rank(6, {"<1,1,6,6>", "<1,1,6,2>"}, {{.head_lanes = 3}, {.head_lanes = 2}});
}
TEST_F(EquivalenceOfSharesAndExchanges, WithTensorParallelism) {
  expect_as_one_rank(8, {"<2,1,4,2>", "<2,1,4,4>"}, all());
}
TEST_F(EquivalenceOfSharesAndExchanges, WithPipelineParallelism) {
  expect_as_one_rank(8, {"<1,2,4,2>", "<1,2,4,4>", "<1,2,3,3> + <1,1,2,2>"}, all());
}
TEST_F(EquivalenceOfSharesAndExchanges, WithBoth) { expect_as_one_rank(8, {"<2,2,2,2>"}, heads()); }
TEST_F(EquivalenceOfSharesAndExchanges, FourLanesBesideFourThatShareNothing) {
  expect_as_one_rank(8, {"<1,1,4,4> + <1,1,4>", "<1,1,4,4> + 4x<1,1,1>"}, all());
}
TEST_F(EquivalenceOfSharesAndExchanges, SwitchingEveryStep) {
  expect_as_one_rank(
      8, {"<1,1,8,8>", "<2,1,4,2>", "<1,1,8>", "2x<1,1,4,4>", "<1,2,4,4>", "<3,1,2,2>", "8x<1,1,1>"}, all());
}

// Lanes that need the same key head have copies of it.
TEST_F(EquivalenceOfSharesAndExchanges, FewKeyHeads) {
  for (const int key_heads : {1, 2}) {
    RunOptions options;
    options.model.kv_heads = key_heads;
    const RunRecord reference = run_in_process(options);
    options.world_size = 5;
    options.strategies = {"<1,1,5,5>", "<1,1,4,2>"};
    options.plan = packed_plan;
    options.exchanges = {{.head_lanes = 0}, {.head_lanes = 4}};
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
  }
}

TEST_F(EquivalenceOfSharesAndExchanges, TiedEmbeddings) {
  RunOptions options;
  options.model.tie_embeddings = true;
  const RunRecord reference = run_in_process(options);
  options.world_size = 4;
  options.strategies = {"<1,1,4,2>", "<1,2,2,2>", "<2,1,2,2>", "<1,1,4,4>"};
  options.plan = packed_plan;
  options.exchanges = all();
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

TEST_F(EquivalenceOfSharesAndExchanges, MemoryPoliciesChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 4;
  options.model.layers = 6;
  options.strategies = {"<1,1,4,2>", "<2,1,2,2>", "<1,1,4,4>"};
  options.plan = packed_plan;
  options.exchanges = {{.head_lanes = 0}, {.head_lanes = 2}};
  expect_memory_policies_change_nothing(std::move(options));
}

TEST_F(EquivalenceOfSharesAndExchanges, RandomDelaysChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 6;
  options.strategies = {"<1,1,6,6>", "<1,1,6,2>", "<1,3,2,2>", "<2,1,3,3>"};
  options.plan = packed_plan;
  options.exchanges = all();
  expect_delays_change_nothing(std::move(options));
}

// Lanes divide experts and rows travel: to lanes with and without own rows, over nodes, beside every other
// degree. Some experts are visited by no row. With a factor that pushes scores apart, one is visited by
// nearly every row.
class EquivalenceOfExpertLanes : public testing::Test {
 protected:
  static RunOptions options_of(const model::Experts& experts) {
    RunOptions options;
    options.model.experts = experts;
    options.moe_aux_loss_coeff = 0.3;
    return options;
  }
  static RunOptions eight() {
    return options_of({.count = 8, .per_token = 3, .hidden = 14, .normalised = true});
  }
  static void expect_as_one_rank(const RunOptions& one_rank, int world_size,
                                 const std::vector<std::string>& strategies,
                                 const std::vector<Plan>& plans = {ringed_plan, dealt_plan}) {
    const RunRecord reference = run_in_process(one_rank);
    RunOptions options = one_rank;
    options.world_size = world_size;
    for (const std::string& strategy : strategies) {
      options.strategies = {strategy};
      for (const Plan& plan : plans) {
        options.plan = plan;
        const RunRecord record = run_in_process(options);
        SCOPED_TRACE(strategy);
        expect_equal(record, reference, 1e-11, 1e-11);
        EXPECT_EQ(record.fsdp_bytes, record.expected_fsdp_bytes);
      }
    }
  }
};

TEST_F(EquivalenceOfExpertLanes, AllOfAGroupDivideThem) {
  expect_as_one_rank(eight(), 4, {"<1,1,2,2,2>", "<1,1,4,4,4>", "<1,1,4,2,2>"});
}
TEST_F(EquivalenceOfExpertLanes, SeveralHoldTheSame) {
  expect_as_one_rank(eight(), 4, {"<1,1,4,4,2>"});
  expect_as_one_rank(eight(), 8, {"<1,1,8,8,2>", "<1,1,8,8,4>"}, {dealt_plan});
}
TEST_F(EquivalenceOfExpertLanes, UnderTensorAndPipelineParallelism) {
  expect_as_one_rank(eight(), 8, {"<2,1,4,4,2>", "<2,1,2,2,2>", "<1,2,4,4,4>", "<1,2,4,4,2>", "<2,2,2,2,2>"},
                     {dealt_plan});
}
TEST_F(EquivalenceOfExpertLanes, OverNodes) {
  RunOptions options = eight();
  options.gpus_per_node = 2;
  expect_as_one_rank(options, 6, {"<1,1,6,6,2>", "<1,1,4,4,4> + <1,1,2,2,2>"}, {dealt_plan});
  expect_as_one_rank(options, 6, {"<1,1,6,6,2>"}, {uneven_plan});
}
TEST_F(EquivalenceOfExpertLanes, SwitchingEveryStep) {
  RunOptions options = eight();
  const RunRecord reference = run_in_process(options);
  options.world_size = 4;
  options.strategies = {"<1,1,4,4,4>", "<1,1,4,4,2>", "<1,1,4,4>",
                        "<2,1,2,2,2>", "4x<1,1,1>",   "2x<1,1,2,2,2>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}
TEST_F(EquivalenceOfExpertLanes, ExchangedHeads) {
  RunOptions options = eight();
  const RunRecord reference = run_in_process(options);
  options.world_size = 4;
  options.strategies = {"<1,1,4,4,4>", "<1,1,4,4,2>"};
  options.plan = packed_plan;
  options.exchanges = {{.head_lanes = 0}, {.head_lanes = 2}, {.head_lanes = 1}};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}
// Experts lie on different lanes in every step, some on several.
TEST_F(EquivalenceOfExpertLanes, PlacedAnewInEveryStep) {
  RunOptions options = eight();
  const RunRecord reference = run_in_process(options);
  options.world_size = 8;
  for (const int spare : {0, 2}) {
    options.redundant_experts = spare;
    for (const char* strategy : {"<1,1,8,8,4>", "<2,2,2,2,2>", "2x<1,1,4,4,2>"}) {
      options.strategies = {strategy};
      SCOPED_TRACE(base::text(strategy, ", ", spare, " to spare"));
      const RunRecord record = run_in_process(options);
      expect_equal(record, reference, 1e-11, 1e-11);
      EXPECT_EQ(record.fsdp_bytes, record.expected_fsdp_bytes);
    }
  }
}
TEST_F(EquivalenceOfExpertLanes, MostExpertsVisitedByNobody) {
  RunOptions options = options_of({.count = 48, .per_token = 3, .hidden = 6, .normalised = true});
  options.model.block_types = {{.experts = true}, {}, {.experts = true}, {.experts = true}};
  expect_as_one_rank(options, 4, {"<1,1,4,4,4>", "<1,2,2,2,2>"}, {dealt_plan});
}
TEST_F(EquivalenceOfExpertLanes, SharedOnesAndBiases) {
  expect_as_one_rank(
      options_of({.count = 6, .per_token = 2, .hidden = 10, .shared_hidden = 14, .shared_gate = true}), 4,
      {"<1,1,4,4,2>", "<2,1,2,2,2>"}, {dealt_plan});
  expect_as_one_rank(
      options_of({.count = 6, .per_token = 2, .hidden = 9, .normalised = true, .biases = true}), 4,
      {"<1,1,2,2,2> + <1,1,2>", "<2,1,2,2,2>"}, {dealt_plan});
}
TEST_F(EquivalenceOfExpertLanes, RecomputingAndOffloadingChangeNothingAtAll) {
  RunOptions options = eight();
  options.world_size = 4;
  options.steps = 4;
  options.model.layers = 6;
  options.strategies = {"<1,1,4,4,4>", "<1,2,2,2,2>", "<1,1,4,4,2>"};
  options.policies = {{}};
  const RunRecord kept = run_in_process(options);
  for (const strategy::MemoryPolicy& policy : {strategy::MemoryPolicy{.recompute_permille = 1000},
                                               {.recompute_dispatch = true},
                                               {.offload_permille = 500},
                                               {.offload_permille = 300, .recompute_dispatch = true},
                                               {.recompute_permille = 1000, .offload_permille = 1000}}) {
    options.policies = {policy};
    const RunRecord run = run_in_process(options);
    EXPECT_EQ(run.losses, kept.losses);
    EXPECT_EQ(run.parameters, kept.parameters);
  }
}
TEST_F(EquivalenceOfExpertLanes, RandomDelaysChangeNothingAtAll) {
  RunOptions options = eight();
  options.world_size = 4;
  options.strategies = {"<1,1,4,4,4>", "<1,1,4,4,2>", "<1,2,2,2,2>"};
  expect_delays_change_nothing(std::move(options));
}

}  // namespace
}  // namespace sluice::runtime
