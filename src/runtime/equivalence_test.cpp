// The first test of every feature: under any strategy the training run equals that of one rank, up to the
// order of summation (docs/architecture.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/rng.h"
#include "base/text.h"
#include "cost/link_buffers.h"
#include "model/test_families.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

TEST_F(Equivalence, TrainingLearns) { EXPECT_LT(one_rank().losses.back(), one_rank().losses.front()); }
TEST_F(Equivalence, FourPipelines) { expect_as_one_rank(4, {"4x<1,1,1>"}); }
TEST_F(Equivalence, HeterogeneousTensorParallel) { expect_as_one_rank(4, {"<2,1,1> + 2x<1,1,1>"}); }
TEST_F(Equivalence, PipelineBesideTensorParallel) { expect_as_one_rank(4, {"<1,2,1> + <2,1,1>"}); }
TEST_F(Equivalence, StagesThatDifferByALayer) { expect_as_one_rank(3, {"<1,3,1>"}); }
TEST_F(Equivalence, IdleRank) { expect_as_one_rank(3, {"<2,1,1>"}); }
TEST_F(Equivalence, TensorAndPipelineParallel) { expect_as_one_rank(6, {"<3,2,1>"}); }
TEST_F(Equivalence, SwitchingEveryStep) {
  expect_as_one_rank(4, {"4x<1,1,1>", "<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "<1,4,1>",
                         "<3,1,1> + <1,1,1>", "<2,2,1>"});
}

class LanesOfOnePipeline : public EquivalenceOnLanes, public testing::WithParamInterface<int> {};
TEST_P(LanesOfOnePipeline, AsOneRank) {
  expect_as_one_rank(GetParam(), {base::text("<1,1,", GetParam(), ">")});
}
INSTANTIATE_TEST_SUITE_P(OneToSeven, LanesOfOnePipeline, testing::Range(1, 8),
                         [](const auto& info) { return base::text(info.param, "Lanes"); });

TEST_F(EquivalenceOnLanes, WithTensorParallelism) { expect_as_one_rank(6, {"<2,1,3>"}); }
TEST_F(EquivalenceOnLanes, WithPipelineParallelism) { expect_as_one_rank(7, {"<1,2,2> + <1,1,3>"}); }
TEST_F(EquivalenceOnLanes, WithBoth) { expect_as_one_rank(8, {"<2,2,2>"}); }
TEST_F(EquivalenceOnLanes, OneThreeAndEightMicroBatches) {
  RunOptions options;
  options.sequences = 10;
  const RunRecord reference = run_in_process(options);
  options.plan = uneven_plan;
  for (const char* strategy : {"<1,1,3>", "<1,2,3>"}) {
    options.strategies = {strategy};
    options.world_size = strategy::parse_strategy(strategy, 6).ranks();
    const RunRecord record = run_in_process(options);
    expect_equal(record, reference, 1e-11, 1e-11);
    EXPECT_EQ(record.exchange_bytes, record.expected_exchange_bytes);
  }
}

// The term is in gradients alone, so losses differ from those without it once parameters do.
TEST_F(EquivalenceOnLanes, ZLossDoesNotKnowTheStrategy) {
  RunOptions options;
  options.z_loss = 1e-3;
  const RunRecord reference = run_in_process(options);
  EXPECT_NE(reference.losses.back(), run_in_process(RunOptions{}).losses.back());
  options.world_size = 6;
  options.strategies = {"<2,1,2> + <1,2,1>", "<1,1,6,2>", "<2,1,3>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// It counts a sequence's visits wherever its pieces lie: whole, in rings, in head groups, in
// stages.
TEST_F(EquivalenceOfExchanges, BalanceOfExpertsDoesNotKnowTheStrategy) {
  RunOptions options;
  options.model.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true};
  const RunRecord without = run_in_process(options);
  options.moe_aux_loss_coeff = 0.05;
  const RunRecord reference = run_in_process(options);
  EXPECT_NE(reference.losses.back(), without.losses.back());
  options.world_size = 8;
  options.plan = packed_plan;
  options.exchanges = {{}, {.head_lanes = 0}, {.head_lanes = 2}};
  options.strategies = {"<1,1,8>", "<2,1,4>", "<1,2,4>", "<1,1,8,8>", "8x<1,1,1>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// A step's counts are whole numbers, so not even their order matters.
TEST_F(EquivalenceOfExchanges, CountsOfExpertsDoNotKnowTheStrategy) {
  RunOptions options;
  options.model.experts = {
      .count = 6, .per_token = 2, .hidden = 14, .normalised = true, .sigmoid = true, .corrected = true};
  options.model.experts.remembers_loads = true;
  options.moe_aux_loss_coeff = 0.05;
  const RunRecord uncorrected = run_in_process(options);
  options.moe_router_bias_update_rate = 0.02;
  const RunRecord reference = run_in_process(options);
  EXPECT_NE(reference.losses.back(), uncorrected.losses.back());
  options.world_size = 8;
  options.plan = packed_plan;
  options.exchanges = {{}, {.head_lanes = 0}};
  options.strategies = {"<1,1,8>", "<2,1,4>", "<1,2,4>", "<1,1,8,8,2>", "8x<1,1,1>", "<2,2,2,2,2>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

TEST_F(EquivalenceOnLanes, WholeSequencesMoveNoRingBytes) {
  RunOptions options;
  options.world_size = 4;
  options.strategies = {"4x<1,1,1>", "<2,2,1>"};
  const RunRecord record = run_in_process(options);
  for (const int64_t bytes : record.exchange_bytes) EXPECT_EQ(bytes, 0);
}

TEST_F(EquivalenceOnLanes, SwitchingEveryStep) {
  expect_as_one_rank(6, {"<1,1,6>", "<2,1,3>", "<1,2,2> + 2x<1,1,1>", "2x<1,1,3>", "<1,3,2>", "<6,1,1>"});
}

// Twelve heads are uneven over 5 and 7 lanes, six key heads over 4 as well.
class HeadsOfOnePipeline : public EquivalenceOfExchanges, public testing::WithParamInterface<int> {};
TEST_P(HeadsOfOnePipeline, AsOneRank) {
  expect_as_one_rank(GetParam(), {base::text("<1,1,", GetParam(), ">")}, {{.head_lanes = 0}});
}
INSTANTIATE_TEST_SUITE_P(TwoToEight, HeadsOfOnePipeline, testing::Range(2, 9),
                         [](const auto& info) { return base::text(info.param, "Lanes"); });

TEST_F(EquivalenceOfExchanges, Nested) {
  expect_as_one_rank(8, {"<1,1,8>"}, {{.head_lanes = 4}, {.head_lanes = 2}});
  expect_as_one_rank(6, {"<1,1,6>"}, {{.head_lanes = 3}, {.head_lanes = 2}});
}
TEST_F(EquivalenceOfExchanges, WithTensorParallelism) { expect_as_one_rank(8, {"<2,1,4>"}, all()); }
TEST_F(EquivalenceOfExchanges, WithPipelineParallelism) {
  expect_as_one_rank(8, {"<1,2,3> + <1,1,2>"}, all());
}
TEST_F(EquivalenceOfExchanges, WithBoth) { expect_as_one_rank(8, {"<2,2,2>"}, {{.head_lanes = 0}}); }
TEST_F(EquivalenceOfExchanges, SwitchingEveryStep) {
  expect_as_one_rank(8, {"<1,1,8>", "<2,1,4>", "<1,2,4>", "2x<1,1,4>", "<3,1,2>", "8x<1,1,1>"}, all());
}

TEST_F(EquivalenceOfExchanges, OneKeyHead) {
  RunOptions options;
  options.model.kv_heads = 1;
  const RunRecord reference = run_in_process(options);
  options.world_size = 5;
  options.strategies = {"<1,1,5>"};
  options.plan = packed_plan;
  options.exchanges = {{.head_lanes = 0}};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// Activations that a policy drops or moves are the same to the bit when they are back. Recomputed heads are
// exchanged once more.
TEST_F(EquivalenceOfExchanges, MemoryPoliciesChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 4;
  options.model.layers = 6;
  options.strategies = {"<1,1,4>", "<2,1,2>"};
  options.plan = packed_plan;
  options.exchanges = {{.head_lanes = 0}, {.head_lanes = 2}};
  const RunRecord kept = run_in_process(options);
  using strategy::MemoryPolicy;
  for (const std::vector<MemoryPolicy>& policies :
       {std::vector<MemoryPolicy>{{.recompute_permille = 1000}},
        {{.offload_permille = 300}},
        {{}, {.offload_permille = 1000}, {.recompute_permille = 1000, .offload_permille = 500}}}) {
    options.policies = policies;
    const RunRecord run = run_in_process(options);
    EXPECT_EQ(run.losses, kept.losses);
    EXPECT_EQ(run.parameters, kept.parameters);
    EXPECT_EQ(run.exchange_bytes, run.expected_exchange_bytes);
  }
}

// Visits are more rows than tokens, their routes are integers, and no backward routes again.
TEST_F(EquivalenceOfExchanges, MemoryPoliciesChangeNothingOfExperts) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 4;
  options.model.experts = {
      .count = 7, .per_token = 3, .hidden = 11, .shared_hidden = 12, .shared_gate = true};
  options.moe_aux_loss_coeff = 0.01;
  options.strategies = {"<1,1,4>", "<2,2,1>", "<1,1,4,4>"};
  options.plan = packed_plan;
  options.exchanges = {{}, {.head_lanes = 2}};
  const RunRecord kept = run_in_process(options);
  using strategy::MemoryPolicy;
  for (const std::vector<MemoryPolicy>& policies :
       {std::vector<MemoryPolicy>{{.recompute_permille = 1000}},
        {{.offload_permille = 300}},
        {{}, {.offload_permille = 1000}, {.recompute_permille = 1000, .offload_permille = 500}}}) {
    options.policies = policies;
    const RunRecord run = run_in_process(options);
    EXPECT_EQ(run.losses, kept.losses);
    EXPECT_EQ(run.parameters, kept.parameters);
  }
}

// Up to eight lanes by every exchange, several documents a lane, many shorter than the convolution.
TEST_F(EquivalenceOfExchanges, StatesPassThroughAnyLanes) {
  RunOptions options;
  options.model.layers = 3;
  options.model.recurrent = {.key_heads = 4,
                             .value_heads = 12,
                             .key_width = 4,
                             .value_width = 3,
                             .convolution = 6,
                             .rate_scale = 2.0};
  options.model.block_types = {{.recurrent = true}, {}, {.recurrent = true}};
  options.sequences = 14;
  const RunRecord reference = run_in_process(options);
  options.world_size = 8;
  options.plan = packed_plan;
  options.strategies = {"<1,1,8>",           "<1,1,5> + <1,1,3>", "<2,1,4>",
                        "<1,1,7> + <1,1,1>", "<1,1,8,8>",         "<1,2,4>"};
  for (const std::vector<LaneExchange>& exchanges :
       {std::vector<LaneExchange>{{}}, {{.head_lanes = 0}}, {{.head_lanes = 2}, {.head_lanes = 4}, {}}}) {
    options.exchanges = exchanges;
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
  }
}

// States and rows of margins stay too, which are not a token's.
TEST_F(EquivalenceOfExchanges, MemoryPoliciesChangeNothingOfRecurrentLayers) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 4;
  options.model.recurrent = {
      .key_heads = 2, .value_heads = 4, .key_width = 4, .value_width = 3, .convolution = 3};
  options.model.block_types.assign(static_cast<size_t>(options.model.layers), {.recurrent = true});
  options.model.block_types.back() = {};
  options.strategies = {"<1,1,4>", "<2,2,1>", "<1,1,4,4>"};
  options.plan = packed_plan;
  options.exchanges = {{}, {.head_lanes = 2}};
  const RunRecord kept = run_in_process(options);
  using strategy::MemoryPolicy;
  for (const std::vector<MemoryPolicy>& policies :
       {std::vector<MemoryPolicy>{{.recompute_permille = 1000}},
        {{.offload_permille = 300}},
        {{}, {.offload_permille = 1000}, {.recompute_permille = 1000, .offload_permille = 500}}}) {
    options.policies = policies;
    const RunRecord run = run_in_process(options);
    EXPECT_EQ(run.losses, kept.losses);
    EXPECT_EQ(run.parameters, kept.parameters);
  }
}

// On every rank and in every step. Small tensors are not counted here.
void expect_predicted_peaks(const RunRecord& run) {
  for (size_t step = 0; step < run.peak_bytes.size(); ++step) {
    for (size_t rank = 0; rank < run.peak_bytes[step].size(); ++rank) {
      const auto measured = static_cast<double>(run.peak_bytes[step][rank]);
      const auto predicted =
          static_cast<double>(run.predicted_peak_bytes[step][rank] - cost::kSmallTensorBytes);
      EXPECT_NEAR(measured, predicted, 0.05 * predicted) << "step " << step << ", rank " << rank;
    }
  }
}

// For rings, head exchange and nested micro-batches on four lanes.
void expect_predicted_peaks_of_exchanges(RunOptions options) {
  options.world_size = 4;
  options.max_tokens = 192;
  options.sequences = 24;
  options.strategies = {"<1,1,4>"};
  options.plan = ringed_plan;
  using strategy::MemoryPolicy;
  for (const int head_lanes : {1, 2, 0}) {
    for (const MemoryPolicy& policy :
         {MemoryPolicy{}, {.recompute_permille = 1000}, {.offload_permille = 500}}) {
      SCOPED_TRACE(base::text(head_lanes, " lanes, ", to_text(policy)));
      options.exchanges = {{.head_lanes = head_lanes}};
      options.policies = {policy};
      expect_predicted_peaks(run_in_process(options));
    }
  }
}

TEST_F(EquivalenceOfExchanges, PeakBytesAreThePredictedOnes) {
  RunOptions options;
  options.steps = 2;
  options.model.layers = 8;
  expect_predicted_peaks_of_exchanges(std::move(options));
}

// Windows in every other layer, and caps.
void alternating(model::Outline& s) {
  s.window = 20;
  s.block_types.resize(static_cast<size_t>(s.layers));
  for (size_t i = 0; i < s.block_types.size(); i += 2) s.block_types[i].windowed = true;
  s.score_cap = 0.01;
}

TEST_F(EquivalenceOfExchanges, MemoryPoliciesChangeNothingThroughWindows) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 3;
  options.model.layers = 6;
  alternating(options.model);
  options.strategies = {"<1,1,4>", "<2,1,2>", "<1,2,2>"};
  options.plan = packed_plan;
  options.exchanges = {{.head_lanes = 1}, {.head_lanes = 0}, {.head_lanes = 2}};
  const RunRecord kept = run_in_process(options);
  for (const strategy::MemoryPolicy& policy : {strategy::MemoryPolicy{.recompute_permille = 1000},
                                               {.offload_permille = 1000},
                                               {.recompute_permille = 1000, .offload_permille = 500}}) {
    options.policies = {policy};
    const RunRecord run = run_in_process(options);
    EXPECT_EQ(run.losses, kept.losses) << to_text(policy);
    EXPECT_EQ(run.parameters, kept.parameters) << to_text(policy);
  }
}

TEST_F(EquivalenceOfExchanges, PeakBytesThroughWindowsAreThePredictedOnes) {
  RunOptions options;
  options.steps = 2;
  options.model.layers = 8;
  alternating(options.model);
  expect_predicted_peaks_of_exchanges(std::move(options));
}

TEST_F(EquivalenceOfExchanges, RandomDelaysChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 6;
  options.strategies = {"<1,1,6>", "<1,3,2>", "<2,1,3>"};
  options.plan = packed_plan;
  options.exchanges = all();
  expect_delays_change_nothing(std::move(options));
}

TEST(PeakBytes, GrowWithTheLongestMicroBatch) {
  RunOptions options;
  options.steps = 1;
  options.max_tokens = 1'000;
  const int64_t in_one = run_in_process(options).peak_bytes[0][0];
  options.max_tokens = 64;
  EXPECT_GT(in_one, run_in_process(options).peak_bytes[0][0]);
}

TEST_F(Equivalence, TwoLevelLinks) {
  RunOptions options;
  options.world_size = 4;
  options.gpus_per_node = 2;
  options.strategies = {"<2,1,1> + 2x<1,1,1>", "<1,2,1> + <2,1,1>", "4x<1,1,1>"};
  expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
}

TEST_F(Equivalence, RandomDelaysChangeNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.strategies = {"<1,2,1> + <2,1,1>", "<1,1,4>", "4x<1,1,1>", "<1,2,2>"};
  expect_delays_change_nothing(std::move(options));
}

// Under a degree of one the head takes as long as two layers, under two the embedding does.
TEST_F(Equivalence, StagesCutByTime) {
  RunOptions options;
  options.cut_times = {{1, {0, 10, 20}}, {2, {20, 10, 0}}};
  const model::Program program(options.model, options.cut_times);
  ASSERT_EQ(program.of_stage(1, 2, 0).size(), 1 + 3);
  ASSERT_EQ(program.of_stage(2, 2, 0).size(), 1 + 1);
  options.world_size = 4;
  options.strategies = {"<1,2,1> + <2,1,1>", "<2,2,1>",   "<1,3,1> + <1,1,1>",
                        "<1,2,2>",           "<1,2,2,2>", "2x<1,2,1>"};
  for (const auto plan : {&dealt_plan, &ringed_plan}) {
    options.plan = plan;
    expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
  }
  options.policies = {{.recompute_permille = 1000}, {.offload_permille = 500}, {}};
  expect_equal(run_in_process(options), one_rank(), 1e-11, 1e-11);
}

TEST_F(Equivalence, TiedEmbeddings) {
  RunOptions options;
  options.model.tie_embeddings = true;
  const RunRecord reference = run_in_process(options);
  options.world_size = 4;
  options.strategies = {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<2,2,1>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

TEST_F(Equivalence, MoreTensorParallelRanksThanKeyValueHeads) {
  RunOptions options;
  options.model.kv_heads = 2;
  const RunRecord reference = run_in_process(options);
  options.world_size = 6;
  options.strategies = {"<4,1,1> + <2,1,1>", "<6,1,1>", "<2,3,1>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// Layer features that differ between families: biases, norms of queries and keys, norms behind parts,
// factors, layers without rotary positions, windows, caps, sinks.
struct FamilyCase {
  std::string name;
  void (*apply)(model::Outline&);
};
void PrintTo(const FamilyCase& family, std::ostream* stream) { *stream << family.name; }

const std::vector<FamilyCase>& families_of_own_layers() {
  static const std::vector<FamilyCase> cases{
      {"Lfm2", [](model::Outline& s) { s = model::lfm2_outline(s); }},
      {"Cohere2", [](model::Outline& s) { s = model::cohere2_outline(s); }},
      {"Ministral3", [](model::Outline& s) { s = model::ministral3_outline(s); }},
      {"Hunyuan", [](model::Outline& s) { s = model::hunyuan_outline(s); }},
      {"Nanochat", [](model::Outline& s) { s = model::nanochat_outline(s); }},
      {"FalconH1", [](model::Outline& s) { s = model::falcon_h1_outline(s); }},
      {"Gemma4", [](model::Outline& s) { s = model::gemma4_outline(s); }},
      {"Gemma4E", [](model::Outline& s) { s = model::gemma4_e_outline(s); }},
      {"Llama4", [](model::Outline& s) { s = model::llama4_outline(s); }},
      {"Phimoe", [](model::Outline& s) { s = model::phimoe_outline(s); }},
      {"KimiLinear", [](model::Outline& s) { s = model::kimi_linear_outline(s); }},
      {"Afmoe", [](model::Outline& s) { s = model::afmoe_outline(s); }},
      {"WindowsOfTwoWidths", [](model::Outline& s) { s = model::two_windows_outline(s); }}};
  return cases;
}

// Features that Gemma's generations have in common.
void gemma(model::Outline& s) {
  s.window = 5;
  s.block_types = {{.windowed = true}, {.windowed = true}, {}, {.windowed = true}};
  s.norm_place = model::NormPlace::kAround;
  s.norm_offset = 1.0;
  s.norm_eps = 1e-6;
  s.activation = model::Activation::kGeluTanh;
  s.embedding_scale = 4.0;
  s.tie_embeddings = true;
}

using model::Outline;
const std::vector<FamilyCase>& families() {
  static const std::vector<FamilyCase> cases{
      FamilyCase{"Qwen2", [](Outline& s) { s.qkv_bias = true; }},
      FamilyCase{"Qwen3", [](Outline& s) { s.qk_norm = model::QkNorm::kEachHead; }},
      FamilyCase{"Olmo2",
                 [](Outline& s) {
                   s.qk_norm = model::QkNorm::kAllHeads;
                   s.norm_place = model::NormPlace::kBehind;
                   s.norm_eps = 1e-6;
                 }},
      FamilyCase{"Granite",
                 [](Outline& s) {
                   s.embedding_scale = 6.0;
                   s.residual_scale = 0.4;
                   s.attention_scale = 0.2;
                   s.logit_divisor = 4.0;
                 }},
      FamilyCase{"SmolLm3",
                 [](Outline& s) {
                   s.block_types = {{}, {}, {.rotates = false}, {}};
                   s.tie_embeddings = true;
                 }},
      FamilyCase{"Mistral", [](Outline& s) { s.window = 7; }},
      FamilyCase{"Phi3",
                 [](Outline& s) {
                   s.window = 30;
                   s.rope = {.scaling = model::RopeScaling::kLongRope,
                             .original_max_position_embeddings = 16,
                             .attention_factor = 1.2,
                             .short_factors = {1, 1, 1, 1},
                             .long_factors = {1, 1.5, 3, 9}};
                 }},
      FamilyCase{"Gemma2",
                 [](Outline& s) {
                   gemma(s);
                   // As large as the scores and logits of fresh weights, so that they matter.
                   s.score_cap = 0.01;
                   s.logit_cap = 0.2;
                 }},
      FamilyCase{"Gemma3",
                 [](Outline& s) {
                   gemma(s);
                   s.qk_norm = model::QkNorm::kEachHead;
                   s.window_rope = model::Rope{.theta = 100.0};
                 }},
      FamilyCase{
          "Mixtral",
          [](Outline& s) { s.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true}; }},
      // Most experts get no token of a micro-batch.
      FamilyCase{"Qwen3Moe",
                 [](Outline& s) {
                   s.qk_norm = model::QkNorm::kEachHead;
                   s.experts = {.count = 48, .per_token = 3, .hidden = 6, .normalised = true};
                   s.block_types = {{.experts = true}, {}, {.experts = true}, {.experts = true}};
                 }},
      FamilyCase{"Qwen2Moe",
                 [](Outline& s) {
                   s.qkv_bias = true;
                   s.experts = {
                       .count = 6, .per_token = 2, .hidden = 7, .shared_hidden = 12, .shared_gate = true};
                 }},
      FamilyCase{"GptOss", [](Outline& s) {
                   s.window = 4;
                   s.block_types = {{.windowed = true, .experts = true},
                                    {.experts = true},
                                    {.windowed = true, .experts = true},
                                    {.experts = true}};
                   s.experts = {.count = 6, .per_token = 2, .hidden = 9, .normalised = true, .biases = true};
                   s.activation = model::Activation::kClampedSilu;
                   s.gate_slope = 1.702;
                   s.gate_limit = 0.04;
                   s.sinks = s.qkv_bias = s.out_bias = true;
                   s.rope = {.scaling = model::RopeScaling::kYarn,
                             .factor = 4.0,
                             .original_max_position_embeddings = 16,
                             .truncate = false};
                 }}};
  return cases;
}

const std::vector<FamilyCase>& hybrids() {
  static const std::vector<FamilyCase> cases{
      FamilyCase{"OlmoHybrid",
                 [](Outline& s) {
                   s.recurrent = {.key_heads = 6,
                                  .value_heads = 6,
                                  .key_width = 3,
                                  .value_width = 5,
                                  .convolution = 4,
                                  .rate_scale = 2.0};
                   s.qk_norm = model::QkNorm::kAllHeads;
                   s.norm_place = model::NormPlace::kBehind;
                   s.norm_eps = 1e-6;
                   s.block_types = {{.rotates = false, .recurrent = true},
                                    {.rotates = false, .recurrent = true},
                                    {.rotates = false, .recurrent = true},
                                    {.rotates = false}};
                 }},
      FamilyCase{"Qwen3Next",
                 [](Outline& s) {
                   s.recurrent = {.key_heads = 6,
                                  .value_heads = 12,
                                  .key_width = 3,
                                  .value_width = 4,
                                  .convolution = 4,
                                  .by_key_head = true};
                   s.experts = {.count = 6,
                                .per_token = 2,
                                .hidden = 7,
                                .normalised = true,
                                .shared_hidden = 12,
                                .shared_gate = true};
                   s.qk_norm = model::QkNorm::kEachHead;
                   s.norm_offset = 1.0;
                   s.gated = true;
                   s.rotated = 2;
                   s.tie_embeddings = true;
                   s.block_types = {{.experts = true, .recurrent = true},
                                    {.experts = true},
                                    {.recurrent = true},
                                    {.experts = true}};
                 }},
      // Value heads share key heads, which lanes that exchange heads part; a convolution is wider than many
      // documents and pieces; some layers attend through a window, some have experts.
      FamilyCase{"RecurrentBesideOthers",
                 [](Outline& s) {
                   s.recurrent = {
                       .key_heads = 6, .value_heads = 18, .key_width = 4, .value_width = 3, .convolution = 9};
                   s.window = 5;
                   s.experts = {.count = 5, .per_token = 2, .hidden = 14, .normalised = true};
                   s.block_types = {{.recurrent = true},
                                    {.windowed = true},
                                    {.experts = true, .recurrent = true},
                                    {.experts = true}};
                 }},
      FamilyCase{"DeepSeekV3",
                 [](Outline& s) {
                   s.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
                   s.kv_heads = s.heads;
                   s.head_dim = 8;
                   s.rotated = 2;
                   s.experts = {
                       .count = 8, .per_token = 2, .hidden = 9, .normalised = true, .shared_hidden = 11};
                   s.experts.sigmoid = s.experts.corrected = true;
                   s.experts.groups = 4;
                   s.experts.groups_chosen = 2;
                   s.experts.factor = 2.5;
                   s.block_types = {{}, {.experts = true}, {.experts = true}, {.experts = true}};
                 }},
      FamilyCase{"GraniteHybrid",
                 [](Outline& s) {
                   s.recurrent = {.recurrence = model::Recurrence::kMamba2,
                                  .key_heads = 6,
                                  .value_heads = 12,
                                  .key_width = 4,
                                  .value_width = 3,
                                  .convolution = 4,
                                  .convolution_bias = true};
                   s.embedding_scale = 6.0;
                   s.residual_scale = 0.4;
                   s.attention_scale = 0.2;
                   s.logit_divisor = 4.0;
                   s.block_types = {{.rotates = false, .recurrent = true},
                                    {.rotates = false, .recurrent = true},
                                    {.rotates = false},
                                    {.rotates = false, .recurrent = true}};
                 }},
      FamilyCase{"Gla", [](Outline& s) {
                   s.recurrent = {.recurrence = model::Recurrence::kGla,
                                  .key_heads = 6,
                                  .value_heads = 6,
                                  .key_width = 4,
                                  .value_width = 5,
                                  .convolution = 1,
                                  .decay_rank = 3};
                   s.block_types.assign(4, {.rotates = false, .recurrent = true});
                 }}};
  return cases;
}

// In latent attention the ring passes narrow rows, from which lanes make others' keys and values. Under head
// exchange, and between head groups, keys and values travel.
TEST(EquivalenceOfLatentRings, NarrowRowsGoRound) {
  RunOptions options;
  options.model.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
  options.model.kv_heads = options.model.heads;
  options.model.head_dim = 8;
  options.model.rotated = 2;
  const RunRecord reference = run_in_process(options);
  options.plan = &ringed_plan;
  for (const auto& [ranks, strategy, head_lanes] : {std::tuple(4, "<1,1,4>", 1),
                                                    {6, "<2,1,3>", 1},
                                                    {6, "<1,2,3>", 1},
                                                    {4, "<1,1,4,4>", 1},
                                                    {6, "<1,2,3,3>", 1},
                                                    {4, "<1,1,4>", 2},
                                                    {4, "<1,1,4>", 0}}) {
    SCOPED_TRACE(base::text(strategy, ", head groups of ", head_lanes));
    options.world_size = ranks;
    options.strategies = {strategy};
    options.exchanges = {{.head_lanes = head_lanes}};
    const RunRecord record = run_in_process(options);
    expect_equal(record, reference, 1e-11, 1e-11);
    EXPECT_EQ(record.exchange_bytes, record.expected_exchange_bytes);
  }
}

class EquivalenceOfFamilies : public testing::TestWithParam<FamilyCase> {
 protected:
  // One rank trains once for all tests of a family.
  void SetUp() override {
    static std::map<std::string, std::pair<RunRecord, Tolerance>> known;
    GetParam().apply(options_.model);
    const auto [found, first] = known.try_emplace(GetParam().name);
    reference_ = &found->second;
    if (first) found->second.first = run_in_process(options_);
    if (first) found->second.second = tolerance_of(options_, found->second.first);
  }
  void expect_as_reference() const {
    const auto& [record, tolerance] = *reference_;
    expect_equal(run_in_process(options_), record, tolerance.scalars, tolerance.parameters);
  }

  RunOptions options_;
  const std::pair<RunRecord, Tolerance>* reference_ = nullptr;
};

TEST_P(EquivalenceOfFamilies, EachDegreeAlone) {
  options_.plan = &ringed_plan;
  for (const auto& [ranks, strategy, head_lanes] : {std::tuple(2, "<2,1,1>", 1),
                                                    {3, "<1,3,1>", 1},
                                                    {3, "<1,1,3>", 1},
                                                    {3, "<1,1,3>", 0},
                                                    {2, "<1,1,2,2>", 1}}) {
    SCOPED_TRACE(strategy);
    options_.world_size = ranks;
    options_.strategies = {strategy};
    options_.exchanges = {{.head_lanes = head_lanes}};
    expect_as_reference();
  }
}

TEST_P(EquivalenceOfFamilies, MixedStrategies) {
  options_.world_size = 6;
  options_.strategies = {"<2,1,3>", "<1,2,2> + <2,1,1>", "<3,2,1>", "<1,1,6>", "<2,1,1> + <1,3,1> + <1,1,1>"};
  for (const auto plan : {&ringed_plan, &dealt_plan}) {
    options_.plan = plan;
    expect_as_reference();
  }
  options_.policies = {{.recompute_permille = 1000}, {}};
  expect_as_reference();
}

TEST_P(EquivalenceOfFamilies, SharedParametersAndExchangedHeads) {
  options_.world_size = 6;
  options_.strategies = {"<1,1,6,3>", "<1,1,4,2> + <1,1,2>", "<1,2,2,2>", "<2,1,3>"};
  options_.plan = &ringed_plan;
  expect_as_reference();
  options_.strategies = {"<1,1,4> + <2,1,1>", "<1,1,2> + <1,2,2>", "<2,1,2>"};
  options_.exchanges = {{.head_lanes = 0}, {.head_lanes = 2}};
  expect_as_reference();
}

INSTANTIATE_TEST_SUITE_P(OfOwnLayers, EquivalenceOfFamilies, testing::ValuesIn(families_of_own_layers()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Hybrids, EquivalenceOfFamilies, testing::ValuesIn(hybrids()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Cases, EquivalenceOfFamilies, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

// Narrow and wide, shallow and deep: how much a family amplifies rounding depends on its sizes.
TEST(EquivalenceOfRandomShapes, AsOneRank) {
  const std::vector<std::pair<int, const char*>> strategies{
      {2, "<2,1,1>"}, {3, "<1,1,3>"}, {4, "<1,1,4,2>"}, {4, "<1,2,1> + <2,1,1>"}, {4, "<2,1,2>"}};
  const uint64_t runs = usual_steps() < 20 ? 5 : 50;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    base::Rng random(seed);
    RunOptions options;
    Outline& outline = options.model;
    outline.layers = static_cast<int>(random.between(2, 5));
    outline.hidden = random.between(4, 24) * 2;
    outline.ffn_hidden = random.between(4, 40) * 2;
    outline.vocab = random.between(20, 80);
    outline.norm_eps = 1e-6;
    const FamilyCase& family = families()[random.below(families().size())];
    family.apply(outline);
    if (!outline.block_types.empty()) outline.block_types.resize(static_cast<size_t>(outline.layers));
    const RunRecord reference = run_in_process(options);
    const Tolerance tolerance = tolerance_of(options, reference);
    const auto& [ranks, strategy] = strategies[random.below(strategies.size())];
    options.world_size = ranks;
    options.strategies = {strategy};
    options.plan = random.below(2) == 0 ? ringed_plan : dealt_plan;
    SCOPED_TRACE(base::text("seed ", seed, ", ", family.name, ", ", strategy));
    expect_equal(run_in_process(options), reference, tolerance.scalars, tolerance.parameters);
  }
}

// Recomputed activations are the forward's to the bit.
TEST_F(Equivalence, RecomputingChangesNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 6;
  options.max_tokens = 64;
  options.strategies = {"<1,2,1> + <2,1,1>", "<2,2,1>", "4x<1,1,1>", "<1,4,1>", "<1,1,4>"};
  const RunRecord kept = run_in_process(options);
  using strategy::MemoryPolicy;
  for (const std::vector<MemoryPolicy>& policies :
       {std::vector<MemoryPolicy>{{.recompute_permille = 1000}}, {{}, {.recompute_permille = 1000}}}) {
    options.policies = policies;
    const RunRecord recomputed = run_in_process(options);
    EXPECT_EQ(recomputed.losses, kept.losses);
    EXPECT_EQ(recomputed.parameters, kept.parameters);
    EXPECT_EQ(recomputed.exchange_bytes, kept.exchange_bytes);
  }
}

// A share of the rows goes to host memory and comes back as it was; micro-batches that keep theirs beside
// them have deferred weight gradients.
TEST_F(Equivalence, OffloadingChangesNothingAtAll) {
  RunOptions options;
  options.world_size = 4;
  options.steps = 4;
  options.max_tokens = 64;
  options.model.layers = 8;
  options.strategies = {"<1,2,1> + <2,1,1>", "<2,2,1>", "4x<1,1,1>", "<1,1,4>"};
  const RunRecord kept = run_in_process(options);
  using strategy::MemoryPolicy;
  for (const std::vector<MemoryPolicy>& policies :
       {std::vector<MemoryPolicy>{{.offload_permille = 300}},
        {{.offload_permille = 1000}},
        {{}, {.offload_permille = 300}, {.recompute_permille = 1000, .offload_permille = 1000}}}) {
    options.policies = policies;
    const RunRecord offloaded = run_in_process(options);
    EXPECT_EQ(offloaded.losses, kept.losses);
    EXPECT_EQ(offloaded.parameters, kept.parameters);
    EXPECT_EQ(offloaded.exchange_bytes, kept.exchange_bytes);
    EXPECT_GT(offloaded.host_peak_bytes.front().front(), 0);
  }
}

TEST_F(Equivalence, PeakBytesAreThePredictedOnes) {
  RunOptions options;
  options.steps = 3;
  options.model.layers = 8;
  options.max_tokens = 192;
  options.sequences = 16;
  using strategy::MemoryPolicy;
  for (const auto& [ranks, strategy] :
       {std::pair(1, "<1,1,1>"), std::pair(2, "<2,1,1>"), std::pair(2, "<1,2,1>")}) {
    options.world_size = ranks;
    options.strategies = {strategy};
    int64_t before = std::numeric_limits<int64_t>::max();
    for (const MemoryPolicy& policy : {MemoryPolicy{},
                                       {.offload_permille = 300},
                                       {.recompute_permille = 1000},
                                       {.recompute_permille = 1000, .offload_permille = 500},
                                       {.recompute_permille = 1000, .offload_permille = 1000}}) {
      options.policies = {policy};
      SCOPED_TRACE(base::text(strategy, ", ", to_text(policy)));
      const RunRecord run = run_in_process(options);
      expect_predicted_peaks(run);
      EXPECT_LT(run.peak_bytes[0][0], before) << to_text(policy);
      before = run.peak_bytes[0][0];
    }
  }
}

TEST_F(Equivalence, SinglePrecision) {
  const RunRecord reference = run(1, {"<1,1,1>"}, comm::DType::kFloat32);
  expect_equal(run(4, {"<1,2,1> + <2,1,1>", "4x<1,1,1>", "<2,1,1> + 2x<1,1,1>"}, comm::DType::kFloat32),
               reference, 1e-5, 1e-4);
}

}  // namespace
}  // namespace sluice::runtime
