// Runs that train an MTP layer equal a run of one rank, under every kind of strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/outline.h"
#include "model/test_tuning.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

// About every third target has a loss.
RunOptions with_mtp(RunOptions options) {
  options.model.family = "deepseek_v3";
  options.model.mtp = true;
  options.mtp_loss_weight = 0.3;
  options.loss_one_in = 3;
  options.steps = std::max<int64_t>(options.steps, 6);  // in fewer losses may not come down
  return options;
}

RunOptions mtp_options(int world_size, std::vector<std::string> strategies) {
  RunOptions options;
  options.world_size = world_size;
  options.strategies = std::move(strategies);
  return with_mtp(std::move(options));
}

// Latent attention, and experts in the last layer and so in the MTP layer.
RunOptions of_latent_experts(int world_size, std::vector<std::string> strategies) {
  RunOptions options = mtp_options(world_size, std::move(strategies));
  model::Outline& model = options.model;
  model.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
  model.kv_heads = model.heads;
  model.head_dim = 8;
  model.rotated = 2;
  model.experts = {
      .count = 8, .per_token = 2, .hidden = 14, .normalised = true, .sigmoid = true, .corrected = true};
  model.block_types = {{}, {.experts = true}, {}, {.experts = true}};
  options.moe_router_bias_update_rate = 1e-3;
  return options;
}

const RunRecord& one_rank_with_mtp() {
  static const RunRecord record = run_in_process(mtp_options(1, {"<1,1,1>"}));
  return record;
}

const RunRecord& one_rank_with_experts_and_mtp() {
  static const RunRecord record = run_in_process(of_latent_experts(1, {"<1,1,1>"}));
  return record;
}

TEST(MtpEquivalence, ItsLossFallsAndTheHeadsStaysApart) {
  const RunRecord& record = one_rank_with_mtp();
  EXPECT_LT(record.mtp_losses.back(), record.mtp_losses.front());
  EXPECT_NE(record.mtp_losses, record.losses);
}

TEST(MtpEquivalence, TensorAndPipelineParallelismAndReplicas) {
  const RunOptions options = mtp_options(4, {"<2,2,1>", "<1,2,1> + <2,1,1>", "4x<1,1,1>", "<1,4,1>"});
  expect_equal(run_in_process(options), one_rank_with_mtp(), 1e-11, 1e-11);
}

TEST(MtpEquivalence, RingsOverLanes) {
  expect_as_one_rank(mtp_options(4, {"<1,1,4>", "<2,1,2>", "<1,2,2>"}), {ringed_plan, packed_plan},
                     one_rank_with_mtp());
}

TEST(MtpEquivalence, ExchangedHeads) {
  RunOptions options = mtp_options(6, {"<1,1,6>", "<2,1,3>"});
  options.exchanges = {{.head_lanes = 0},
                       {.head_lanes = 2},
                       {.exchange = strategy::Exchange::kBalanced},
                       {.exchange = strategy::Exchange::kQueries}};
  expect_as_one_rank(std::move(options), {dealt_plan, packed_plan}, one_rank_with_mtp());
}

TEST(MtpEquivalence, SharedParameters) {
  RunOptions options = mtp_options(4, {"<1,1,4,4>", "<1,1,4,2>", "<1,2,2,2>", "<2,1,2,2>"});
  options.gpus_per_node = 2;
  expect_as_one_rank(std::move(options), {dealt_plan, ringed_plan}, one_rank_with_mtp());
}

TEST(MtpEquivalence, ExpertsOfLatentAttention) {
  const RunOptions options = of_latent_experts(4, {"<2,2,1>", "<1,1,4>", "<1,1,4,4>", "<1,2,2,2>"});
  expect_equal(run_in_process(options), one_rank_with_experts_and_mtp(), 1e-11, 1e-11);
}

// Lanes without a micro-batch of their own compute experts for the others, forward and backward.
TEST(MtpEquivalence, DividedExperts) {
  RunOptions options = of_latent_experts(4, {"<1,1,4,4,4>", "<1,1,4,4,2>"});
  for (const Plan& plan : {Plan(dealt_plan), Plan(ringed_plan)}) {
    options.plan = plan;
    expect_equal(run_in_process(options), one_rank_with_experts_and_mtp(), 1e-11, 1e-11);
  }
}

TEST(MtpEquivalence, MemoryPoliciesChangeNothing) {
  expect_memory_policies_change_nothing(mtp_options(2, {"<1,2,1>", "<1,1,2>"}));
}

TEST(MtpEquivalence, DelaysChangeNothing) {
  expect_delays_change_nothing(mtp_options(4, {"<1,1,4,4>", "<2,2,1>"}));
}

TEST(MtpEquivalence, TheLayerTrainsAloneWhereAllElseIsFrozen) {
  RunOptions options = mtp_options(1, {"<1,1,1>"});
  model::freeze(options.model, {"model.embed_tokens", "model.layers.[0-3]", "model.norm", "lm_head"});
  const RunRecord reference = run_in_process(options);
  EXPECT_LT(reference.mtp_losses.back(), reference.mtp_losses.front());
  options.world_size = 4;
  options.strategies = {"<2,2,1>", "<1,1,4,4>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// Measured activations stay within the proof, which counts the layer as working memory of the head.
TEST(MtpEquivalence, MemoryIsProved) {
  RunOptions options = mtp_options(4, {"<1,1,4,4>", "<2,2,1>", "4x<1,1,1>"});
  options.steps = 3;
  const RunRecord record = run_in_process(options);
  for (size_t step = 0; step < record.peak_bytes.size(); ++step) {
    for (size_t rank = 0; rank < record.peak_bytes[step].size(); ++rank)
      EXPECT_LE(record.peak_bytes[step][rank], record.predicted_peak_bytes[step][rank]);
  }
}

}  // namespace
}  // namespace sluice::runtime
