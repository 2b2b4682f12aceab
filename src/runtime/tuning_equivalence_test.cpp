// Models with few trained parameters, or with adapters, train under any strategy as on one rank. Frozen
// parameters stay the same to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cost/link_buffers.h"
#include "model/outline.h"
#include "model/test_families.h"
#include "model/test_tuning.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

struct Tuning {
  std::string name;
  void (*apply)(model::Outline&);
};
void PrintTo(const Tuning& tuning, std::ostream* stream) { *stream << tuning.name; }

class EquivalenceOfTuning : public testing::TestWithParam<Tuning> {
 protected:
  static RunOptions options() {
    RunOptions options;
    GetParam().apply(options.model);
    options.steps = std::max<int64_t>(options.steps, 6);  // in fewer losses may not come down
    return options;
  }
  static const RunRecord& one_rank() {
    static std::map<std::string, RunRecord> records;
    const auto [record, added] = records.try_emplace(GetParam().name);
    if (added) record->second = run_in_process(options());
    return record->second;
  }
  static void expect_as_one_rank(RunOptions options, std::vector<std::string> strategies,
                                 const std::vector<Plan>& plans) {
    options.strategies = std::move(strategies);
    runtime::expect_as_one_rank(std::move(options), plans, one_rank());
  }
};

TEST_P(EquivalenceOfTuning, OnlyWhatIsTrainedMoves) {
  const model::ParameterTable table = model::parameter_table(options().model);
  ParameterStore before(table, {.precision = {comm::DType::kFloat64}});
  initialize(before, 7);
  const RunRecord& trained = one_rank();
  EXPECT_LT(trained.losses.back(), trained.losses.front());
  int64_t moved = 0;
  for (const model::Bucket& bucket : table.buckets) {
    if (bucket.coded) continue;
    const double* first = before.owner(bucket.index).master.const_data_ptr<double>();
    EXPECT_EQ(before.owner(bucket.index).exp_avg.numel(), bucket.trained ? bucket.size : 0);
    for (const model::Parameter& parameter : bucket.parameters) {
      const std::vector<double> whole(first + parameter.offset, first + parameter.offset + parameter.size());
      if (bucket.trained) {
        moved += trained.parameters.at(parameter.name) != whole ? 1 : 0;
      } else {
        EXPECT_EQ(trained.parameters.at(parameter.name), whole) << parameter.name;
      }
    }
  }
  EXPECT_GT(moved, 0);
}

TEST_P(EquivalenceOfTuning, UnderTensorAndPipelineParallelism) {
  RunOptions options = EquivalenceOfTuning::options();
  options.world_size = 6;
  expect_as_one_rank(std::move(options), {"<3,2,1>", "<2,1,1> + <1,4,1>", "6x<1,1,1>", "<6,1,1>"},
                     {dealt_plan});
}

TEST_P(EquivalenceOfTuning, OnLanesThatExchange) {
  RunOptions options = EquivalenceOfTuning::options();
  options.world_size = 6;
  options.exchanges = {{.head_lanes = 0}, {.head_lanes = 1}};
  expect_as_one_rank(std::move(options), {"<1,1,6>", "<2,1,3>", "<1,2,2> + 2x<1,1,1>"},
                     {ringed_plan, dealt_plan});
}

TEST_P(EquivalenceOfTuning, OnLanesThatShare) {
  RunOptions options = EquivalenceOfTuning::options();
  options.world_size = 8;
  expect_as_one_rank(std::move(options), {"<2,2,2,2>", "<1,1,4,4> + 4x<1,1,1>", "<1,2,4,2>", "<1,1,8,8>"},
                     {dealt_plan});
}

TEST_P(EquivalenceOfTuning, UnderMemoryPoliciesAndTwoLevelLinks) {
  RunOptions options = EquivalenceOfTuning::options();
  options.world_size = 4;
  options.gpus_per_node = 2;
  options.policies = {{.recompute_permille = 1000}, {.offload_permille = 500}, {}};
  expect_as_one_rank(std::move(options), {"<1,2,2,2>", "<2,2,1>", "4x<1,1,1>"}, {dealt_plan});
}

// Owner slices and compute shards are counted without the gradients and moments that frozen parameters lack.
TEST_P(EquivalenceOfTuning, PeaksAreThePredictedOnes) {
  for (const char* strategy : {"<2,1,1>", "2x<1,1,1>"}) {
    RunOptions options = EquivalenceOfTuning::options();
    options.world_size = 2;
    options.steps = 2;
    options.strategies = {strategy};
    const RunRecord record = run_in_process(options);
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto predicted =
          static_cast<double>(record.predicted_peak_bytes[1][rank] - cost::kSmallTensorBytes);
      EXPECT_NEAR(static_cast<double>(record.peak_bytes[1][rank]), predicted, 0.05 * predicted) << strategy;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, EquivalenceOfTuning,
    testing::Values(
        Tuning{"FrozenLayersAndEmbedding",
               [](model::Outline& s) {
                 model::freeze(s, {"model.embed_tokens", "model.layers.[01]"});
               }},
        Tuning{"OnlyTheHead",
               [](model::Outline& s) {
                 model::freeze(s, {"model.embed_tokens", "model.layers"});
               }},
        Tuning{"OnlyNormsAndTheTiedTable",
               [](model::Outline& s) {
                 s.tie_embeddings = true;
                 model::freeze(s, {"*_proj.weight"});
               }},
        Tuning{"FrozenTiedTable",
               [](model::Outline& s) {
                 s.tie_embeddings = s.qkv_bias = true;
                 model::freeze(s, {"model.embed_tokens", "*.gate_proj.weight", "*.up_proj.weight", "*norm*"});
               }},
        Tuning{"Adapters",
               [](model::Outline& s) {
                 model::adapt(s, {.rank = 3, .alpha = 12, .targets = {"q_proj", "v_proj", "down_proj"}});
               }},
        Tuning{"AdaptersOfExperts",
               [](model::Outline& s) {
                 s.experts = {.count = 4, .per_token = 2, .hidden = 14, .normalised = true};
                 s.block_types = {{.experts = true}, {}, {.experts = true}, {.experts = true}};
                 model::adapt(
                     s, {.rank = 2,
                         .alpha = 8,
                         .targets = {"v_proj", "down_proj", "experts.gate_up_proj", "experts.down_proj"}});
               }},
        Tuning{"AdaptersOfABaseInNf4",
               [](model::Outline& s) {
                 model::adapt(s, {.rank = 2, .alpha = 8, .targets = {"all-linear"}});
                 model::quantize_base(s, {base::WeightFormat::kNf4, 8});
               }},
        Tuning{"DecomposedAdapters",
               [](model::Outline& s) {
                 model::adapt(s, {.rank = 2, .alpha = 8, .targets = {"all-linear"}, .dora = true});
               }},
        Tuning{"DecomposedAdaptersOfABaseInNf4",
               [](model::Outline& s) {
                 s.qkv_bias = true;
                 model::adapt(
                     s, {.rank = 3, .alpha = 6, .targets = {"k_proj", "o_proj", "up_proj"}, .dora = true});
                 model::quantize_base(s, {base::WeightFormat::kNf4, 8});
               }},
        Tuning{"AdaptersOfAllWithATiedTable",
               [](model::Outline& s) {
                 s.tie_embeddings = true;
                 model::adapt(s, {.rank = 2, .alpha = 8, .targets = {"all-linear"}});
               }}),
    [](const auto& info) { return info.param.name; });

// DoRA begins with the norms of outputs, of the base as it is computed with: the adapted model is the base
// model then. Each rank finds its own part.
TEST(DecomposedAdapters, BeginAsTheBase) {
  for (const bool coded : {false, true}) {
    const auto tuned = [&](bool dora) {
      model::Outline outline = RunOptions().model;
      model::adapt(outline, {.rank = 2, .alpha = 8, .targets = {"all-linear"}, .dora = dora});
      if (coded) model::quantize_base(outline, {base::WeightFormat::kNf4, 8});
      return outline;
    };
    RunOptions options;
    options.steps = 1;
    options.model = tuned(false);
    const double loss = run_in_process(options).losses.front();
    for (const int ranks : {1, 4}) {
      options.model = tuned(true);
      options.world_size = ranks;
      options.strategies = {ranks == 1 ? "<1,1,1>" : "<2,2,1>"};
      EXPECT_NEAR(run_in_process(options).losses.front(), loss, 1e-6 * loss) << coded << " on " << ranks;
    }
  }
}

// Adapters of experts lie with their experts. Lanes that divide experts have their own experts' adapters, in
// even parts and placed, some twice. Frozen matrices are pulled and never pushed.
TEST(AdaptersOfExperts, TrainAsOneRankWhereverExpertsAre) {
  RunOptions options;
  options.model.experts = {.count = 6,
                           .per_token = 2,
                           .hidden = 14,
                           .normalised = true,
                           .shared_hidden = 12,
                           .sigmoid = true,
                           .corrected = true};
  model::adapt(options.model,
               {.rank = 2,
                .alpha = 6,
                .targets = {"q_proj", "up_proj", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"}});
  const RunRecord reference = run_in_process(options);
  EXPECT_LT(reference.losses.back(), reference.losses.front());
  options.world_size = 8;
  options.plan = packed_plan;
  options.strategies = {"<1,1,8,8,2>", "<2,2,2,2,2>", "<1,2,4,4,2>", "8x<1,1,1>", "<2,1,4>"};
  for (const int spare : {-1, 0, 1}) {
    options.redundant_experts = spare;
    expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
  }
  options.redundant_experts = -1;
  options.policies = {{.recompute_permille = strategy::MemoryPolicy::kAll}, {.offload_permille = 500}, {}};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// Under rings and head exchange other lanes make keys and values from a lane's narrow rows.
TEST(AdaptersOfLatentMatrices, TrainAsOneRank) {
  RunOptions options;
  options.model.latent = {.q_rank = 10, .kv_rank = 7, .unrotated = 6, .rotated = 2, .values = 5};
  options.model.kv_heads = options.model.heads;
  options.model.head_dim = 8;
  options.model.rotated = 2;
  model::adapt(options.model,
               {.rank = 2,
                .alpha = 6,
                .targets = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}});
  const RunRecord reference = run_in_process(options);
  EXPECT_LT(reference.losses.back(), reference.losses.front());
  options.world_size = 4;
  options.plan = &ringed_plan;
  options.exchanges = {{.head_lanes = 1}, {.head_lanes = 0}, {.head_lanes = 2}};
  options.strategies = {"<1,1,4>", "<2,1,2>", "<1,2,2>", "<1,1,4,4>", "<2,2,1>", "4x<1,1,1>"};
  expect_equal(run_in_process(options), reference, 1e-11, 1e-11);
}

// Gemma 4 E's: adapters also on what layers make of their inputs, and on keys and values that later layers
// borrow. The embeddings by layer stay frozen, so no gradient of a layer's input is made.
TEST(AdaptersOfLayersWithInputs, TrainAsOneRank) {
  RunOptions options;
  options.model = model::gemma4_e_outline(options.model);
  model::adapt(options.model, {.rank = 2, .alpha = 6, .targets = {"all-linear"}});
  options.steps = std::max<int64_t>(options.steps, 6);
  const RunRecord reference = run_in_process(options);
  EXPECT_LT(reference.losses.back(), reference.losses.front());
  const Tolerance tolerance = tolerance_of(options, reference);
  options.world_size = 4;
  options.policies = {{.recompute_permille = 1000}, {}};
  options.strategies = {"<1,1,4>", "<2,1,2>", "<1,2,2>", "<1,1,4,4>", "<2,2,1>", "4x<1,1,1>"};
  for (const Plan& plan : {Plan(dealt_plan), Plan(ringed_plan)}) {
    options.plan = plan;
    expect_equal(run_in_process(options), reference, tolerance.scalars, tolerance.parameters);
  }
}

// A loss on one target in twenty: some micro-batches and ranks have none.
TEST(MaskedHead, TrainsAsOneRankUnderEveryStrategy) {
  for (const bool tied : {false, true}) {
    RunOptions options;
    options.model.tie_embeddings = tied;
    options.loss_one_in = 20;
    const RunRecord reference = run_in_process(options);
    const auto expect_as_one_rank = [&](int world_size, std::vector<std::string> strategies) {
      RunOptions run = options;
      run.world_size = world_size;
      run.strategies = std::move(strategies);
      runtime::expect_as_one_rank(std::move(run), {dealt_plan, ringed_plan}, reference);
    };
    expect_as_one_rank(6, {"<3,2,1>", "<2,1,1> + <1,4,1>", "6x<1,1,1>", "<1,1,6>", "<2,1,3>"});
    expect_as_one_rank(8, {"<2,2,2,2>", "<1,1,8,4>", "<1,2,4,2>", "<3,1,2>"});
  }
}

}  // namespace
}  // namespace sluice::runtime
