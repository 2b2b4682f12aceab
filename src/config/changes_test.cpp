#include "config/changes.h"

#include <gmock/gmock.h>

#include "model/outline.h"

namespace sluice::config {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

RunConfig small() {
  RunConfig config;
  config.model.given = model::Outline{
      .layers = 2, .hidden = 8, .heads = 2, .kv_heads = 2, .head_dim = 4, .ffn_hidden = 8, .vocab = 9};
  config.data.train = {{"corpus", 1.0}};
  return config;
}

TEST(Changes, NoneBetweenEqualConfigurations) { EXPECT_THAT(changes(small(), small()), IsEmpty()); }

TEST(Changes, EachKeyHasALineWithBothValues) {
  RunConfig now = small();
  now.optimizer.lr = 1e-3;
  now.optimizer.betas = {0.8, 0.95};
  now.optimizer.decay = Decay::kLinear;
  now.data.tokens_per_step = 100;
  EXPECT_THAT(changes(small(), now), UnorderedElementsAre("optimizer.lr is 0.001, was 0.0003",
                                                          "optimizer.betas is [0.8, 0.95], was [0.9, 0.95]",
                                                          "optimizer.decay is \"linear\", was \"cosine\"",
                                                          "data.tokens_per_step is 100, was 16384"));
}

TEST(Changes, OfWhatIsTrainedAreSaid) {
  RunConfig now = small();
  now.train.freeze = {"model.embed_tokens"};
  now.optimizer.groups = {{{"*.bias"}, 0.001, std::nullopt}};
  now.lora.rank = 8;
  EXPECT_THAT(changes(small(), now),
              UnorderedElementsAre("train.freeze is [\"model.embed_tokens\"], was []",
                                   "optimizer.groups is [{lr = 0.001, parameters = [\"*.bias\"]}], was []",
                                   "lora.rank is 8, was 0"));
}

TEST(Changes, WhatDoesNotReachTheNumbersIsLeftOut) {
  RunConfig now = small();
  now.log.dir = "elsewhere";
  now.train.threads = 3;
  now.train.join_timeout_s = 5;
  EXPECT_THAT(changes(small(), now), IsEmpty());
}

TEST(Changes, AModelFromAFolderInPlaceOfAShape) {
  RunConfig now = small();
  now.model.hf = "folder";
  EXPECT_THAT(changes(small(), now), testing::Contains("model.hf is \"folder\", was not set"));
}

}  // namespace
}  // namespace sluice::config
