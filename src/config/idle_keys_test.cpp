#include "config/idle_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace sluice::config {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr RlAlgorithm kAll[] = {RlAlgorithm::kNone,   RlAlgorithm::kGrpo,      RlAlgorithm::kDapo,
                                RlAlgorithm::kDrGrpo, RlAlgorithm::kReinforce, RlAlgorithm::kPpo,
                                RlAlgorithm::kDpo,    RlAlgorithm::kKto};

std::string refusal(const RunConfig& config) {
  try {
    refuse_idle_keys(config);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

struct Given {
  std::string key;
  std::function<void(RlConfig&)> set;
  std::vector<RlAlgorithm> heeded_by;
};

const std::vector<Given>& given() {
  const std::vector<RlAlgorithm> ppo{RlAlgorithm::kPpo}, pairs{RlAlgorithm::kDpo, RlAlgorithm::kKto},
      kto{RlAlgorithm::kKto},
      groups{RlAlgorithm::kGrpo, RlAlgorithm::kDapo, RlAlgorithm::kDrGrpo, RlAlgorithm::kReinforce};
  static const std::vector<Given> all{
      {"rl.baseline is ", [](RlConfig& rl) { rl.baseline = Baseline::kMean; }, groups},
      {"rl.critic is ", [](RlConfig& rl) { rl.critic = "folder"; }, ppo},
      {"rl.critic_lr is 0.001", [](RlConfig& rl) { rl.critic_lr = 1e-3; }, ppo},
      {"rl.gamma is 0.9", [](RlConfig& rl) { rl.gamma = 0.9; }, ppo},
      {"rl.gae_lambda is 1", [](RlConfig& rl) { rl.gae_lambda = 1; }, ppo},
      {"rl.value_clip is 0", [](RlConfig& rl) { rl.value_clip = 0; }, ppo},
      {"rl.rejected is", [](RlConfig& rl) { rl.rejected = {"worse"}; }, pairs},
      {"rl.beta is 0.5", [](RlConfig& rl) { rl.beta = 0.5; }, pairs},
      {"rl.desirable_weight is 2", [](RlConfig& rl) { rl.desirable_weight = 2; }, kto},
      {"rl.undesirable_weight is 2", [](RlConfig& rl) { rl.undesirable_weight = 2; }, kto},
  };
  return all;
}

TEST(IdleKeys, DefaultsAreNeverRefused) {
  for (const RlAlgorithm algorithm : kAll) {
    RunConfig config;
    config.rl.algorithm = algorithm;
    EXPECT_EQ(refusal(config), "");
    EXPECT_THAT(idle_generation_keys(config), IsEmpty());
  }
}

TEST(IdleKeys, KeysOfOtherAlgorithmsAreRefusedByName) {
  for (const Given& each : given()) {
    for (const RlAlgorithm algorithm : kAll) {
      RunConfig config;
      config.rl.algorithm = algorithm;
      each.set(config.rl);
      const bool heeded = std::ranges::find(each.heeded_by, algorithm) != each.heeded_by.end();
      if (heeded) {
        EXPECT_EQ(refusal(config), "") << each.key;
      } else {
        EXPECT_THAT(refusal(config), HasSubstr(each.key));
        EXPECT_THAT(refusal(config), HasSubstr("has an effect only"));
      }
    }
  }
}

TEST(IdleKeys, ATeachersKeysNeedATeacher) {
  RunConfig config;
  config.teacher.lmbda = 0.5;
  EXPECT_THAT(refusal(config), HasSubstr("teacher.lmbda is 0.5, which has an effect only beside teacher.hf"));
  config.teacher.hf = {"folder"};
  EXPECT_EQ(refusal(config), "");
  config.teacher.beta = 0.1;
  EXPECT_THAT(refusal(config), HasSubstr("teacher.beta is 0.1"));
  config.teacher.divergence = Divergence::kJsd;
  EXPECT_EQ(refusal(config), "");
  config.teacher.alpha = 0.5;
  EXPECT_THAT(refusal(config), HasSubstr("teacher.alpha is 0.5 and teacher.lmbda 0.5"));
}

TEST(IdleKeys, KeysOfGenerationAreDoubtedWhereNoTextIsGenerated) {
  RunConfig config;
  config.rl.algorithm = RlAlgorithm::kDpo;
  config.rl.num_generations = 4;
  config.rl.max_num_seqs = 8;
  EXPECT_EQ(refusal(config), "");
  EXPECT_EQ(idle_generation_keys(config).size(), 2);
  config.train.sample_every = 1;
  EXPECT_EQ(idle_generation_keys(config).size(), 1);
  config.rl.algorithm = RlAlgorithm::kPpo;
  EXPECT_THAT(idle_generation_keys(config), IsEmpty());
}

TEST(IdleKeys, ATeacherOfResponsesHeedsTheirLengthAlone) {
  RunConfig config;
  config.teacher = {.hf = {"folder"}, .lmbda = 1};
  config.rl.max_completion_length = 9;
  config.rl.kv_cache_gib = 2;
  EXPECT_THAT(idle_generation_keys(config), IsEmpty());
  config.rl.updates_per_rollout = 2;
  EXPECT_EQ(idle_generation_keys(config).size(), 1);
}

}  // namespace
}  // namespace sluice::config
