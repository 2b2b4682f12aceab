#include "cost/cut_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/loss_share.h"
#include "cost/test_model.h"
#include "model/test_tuning.h"

namespace sluice::cost {
namespace {

using testing::ElementsAre;

// A layer takes 570 ns for ten tokens and the embedding 30; the head takes 3000 if every token has a loss.
TEST(CutStages, AHeadThatTakesTheTimeOfLayersHasFewerBesideIt) {
  CostModel::Options options = tiny_options();
  options.kinds_by_tp[1].back().times.forward = Quadratic::from_ns(0, 300, 9);
  const std::vector<int64_t> lengths = {10, 10};
  const strategy::Scheme two{.pp = 2};
  EXPECT_THAT(stage_layers(CostModel(options), two), ElementsAre(3, 2));
  EXPECT_THAT(stage_layers(CostModel(cut_by_time(options, lengths)), two), ElementsAre(4, 1));
  const CostModel::Options sparse = with_loss_share(options, 100'000);
  EXPECT_THAT(stage_layers(CostModel(cut_by_time(sparse, lengths)), two), ElementsAre(3, 2));
}

TEST(CutStages, FrozenLayersThatNoBackwardReachesTakeTheirForwardAlone) {
  CostModel::Options options = tiny_options();
  model::freeze(options.model, {"model.embed_tokens", "model.layers.[012]"});
  std::vector<KindCost>& kinds = options.kinds_by_tp[1];
  kinds.insert(kinds.begin() + 1, kinds[1]);
  const std::vector<int64_t> lengths = {10};
  EXPECT_THAT(stage_layers(CostModel(cut_by_time(options, lengths)), {.pp = 2}), ElementsAre(4, 1));
}

}  // namespace
}  // namespace sluice::cost
