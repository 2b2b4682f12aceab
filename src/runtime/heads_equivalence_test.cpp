// Models that end in numbers or embeddings train under any strategy as on one rank.
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "layers/number_loss.h"
#include "model/outline.h"
#include "model/test_tuning.h"
#include "runtime/test_equivalence.h"

namespace sluice::runtime {
namespace {

struct HeadCase {
  std::string name;
  model::HeadStyle head;
  std::shared_ptr<const layers::NumberLoss> (*loss)() = layers::class_cross_entropy;
  int64_t figures = 0;
  void (*change)(model::Outline&) = nullptr;
};
void PrintTo(const HeadCase& own, std::ostream* stream) { *stream << own.name; }

class EquivalenceOfHeads : public testing::TestWithParam<HeadCase> {
 protected:
  static RunOptions options() {
    RunOptions options;
    options.model.head = GetParam().head;
    if (GetParam().change != nullptr) GetParam().change(options.model);
    options.number_loss = GetParam().loss();
    options.figures = GetParam().figures;
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
    if (own.model.window == 0) return runtime::expect_as_one_rank(std::move(own), plans, one_rank());
    // The formula for bytes ignores windows, with which lanes send less.
    for (const Plan& plan : plans) {
      own.plan = plan;
      expect_equal(run_in_process(own), one_rank(), 1e-11, 1e-11);
    }
  }
};

TEST_P(EquivalenceOfHeads, TensorParallel) {
  // More ranks than most heads have numbers: each has all of them.
  expect_as_one_rank(2, {"<2,1,1>"}, {dealt_plan});
  expect_as_one_rank(6, {"<6,1,1>"}, {dealt_plan});
}

TEST_P(EquivalenceOfHeads, Stages) { expect_as_one_rank(4, {"<2,2,1>", "<1,4,1>"}, {dealt_plan}); }

TEST_P(EquivalenceOfHeads, LanesOfWhichOneHasTheLastToken) {
  expect_as_one_rank(4, {"<1,1,4>", "<2,1,2>"}, {dealt_plan, ringed_plan, packed_plan});
}

TEST_P(EquivalenceOfHeads, SharedParameters) {
  expect_as_one_rank(4, {"<1,1,4,4>", "<1,2,2,2>"}, {dealt_plan, ringed_plan});
}

constexpr model::HeadStyle kClasses{.kind = model::HeadKind::kSequence, .numbers = 3};
constexpr model::HeadStyle kReward{.kind = model::HeadKind::kSequence, .numbers = 1};
constexpr model::HeadStyle kTokens{.kind = model::HeadKind::kTokens, .numbers = 5, .bias = true};
constexpr model::HeadStyle kRows{.kind = model::HeadKind::kRows};
constexpr model::HeadStyle kMeanRows{.kind = model::HeadKind::kRows, .pooling = model::Pooling::kMean};

constexpr model::HeadStyle classes_of(model::Pooling pooling) {
  return {.kind = model::HeadKind::kSequence,
          .numbers = 3,
          .bias = true,
          .pooling = pooling,
          .neck = model::NeckStyle{model::Activation::kGelu, true, true}};
}

// Like ModernBERT: attention sees both directions, in some layers through a window.
void make_encoder(model::Outline& outline) {
  outline.causal = false;
  outline.norm = {.kind = model::NormKind::kLayer, .biases = true};
  outline.embedding_norm = true;
  outline.activation = model::Activation::kGelu;
}
// Like BERT: learnt positions, norms of sums.
void make_bert(model::Outline& outline) {
  make_encoder(outline);
  outline.norm_place = model::NormPlace::kOfSum;
  outline.positions = 4096;
  outline.mlp_gate = false;
  outline.mlp_bias = outline.qkv_bias = outline.out_bias = true;
}
void make_windowed_encoder(model::Outline& outline) {
  make_encoder(outline);
  outline.window = 5;
  outline.block_types.assign(static_cast<size_t>(outline.layers), {.windowed = true});
  outline.block_types.front().windowed = false;
}

INSTANTIATE_TEST_SUITE_P(
    Of, EquivalenceOfHeads,
    testing::Values(
        HeadCase{"Classes", kClasses}, HeadCase{"TokenClasses", kTokens},
        HeadCase{"SeveralClasses", kClasses, layers::binary_cross_entropy, 3},
        HeadCase{"Figure", kReward, layers::squared_error, 1},
        HeadCase{"FoundGradient", kReward, layers::found_gradient, 2},
        HeadCase{"Embedding", kRows, layers::found_gradient, 25},
        HeadCase{"MeanEmbedding", kMeanRows, layers::found_gradient, 25},
        HeadCase{"ClassesOfMeans", classes_of(model::Pooling::kMean)},
        HeadCase{"ClassesOfFirstTokens", classes_of(model::Pooling::kCls)},
        HeadCase{"Encoder", classes_of(model::Pooling::kMean), layers::class_cross_entropy, 0, make_encoder},
        HeadCase{"Bert", classes_of(model::Pooling::kCls), layers::class_cross_entropy, 0, make_bert},
        HeadCase{"WindowedEncoder", classes_of(model::Pooling::kCls), layers::class_cross_entropy, 0,
                 make_windowed_encoder},
        HeadCase{"WindowedEncoderOfMeans", kMeanRows, layers::found_gradient, 25, make_windowed_encoder}),
    [](const auto& info) { return info.param.name; });

TEST(EquivalenceOfTiedHeads, ANumberHeadLeavesTheEmbeddingAlone) {
  RunOptions options;
  options.model = model::outline_of_odd_sizes();
  options.model.tie_embeddings = true;
  options.model.head = kClasses;
  options.number_loss = layers::class_cross_entropy();
  const RunRecord one = run_in_process(options);
  EXPECT_EQ(one.parameters.at("score").size(), static_cast<size_t>(3 * options.model.hidden));
  options.world_size = 4;
  options.strategies = {"<2,2,1>"};
  expect_as_one_rank(options, {dealt_plan}, one);
}

TEST(EquivalenceOfAdaptedHeads, TheHeadIsTrainedBesideAdapters) {
  RunOptions options;
  options.model.head = kClasses;
  options.number_loss = layers::class_cross_entropy();
  model::adapt(options.model, {.rank = 2, .alpha = 4, .targets = {"q_proj"}});
  const RunRecord one = run_in_process(options);
  const model::ParameterTable table = model::parameter_table(options.model);
  EXPECT_TRUE(table.head().trained);
  EXPECT_EQ(table.head().parameters.front().name, "score");
  options.world_size = 2;
  options.strategies = {"<2,1,1>"};
  expect_as_one_rank(options, {dealt_plan}, one);
}

}  // namespace
}  // namespace sluice::runtime
