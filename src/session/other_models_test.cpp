#include "session/other_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "cost/link_buffers.h"
#include "model/parameters.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::session {
namespace {

namespace fs = std::filesystem;

class OtherModels : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // A small LLaMA's config.json, with more keys.
  std::string write(const std::string& name, const std::string& more = "", int64_t vocab = 64) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, )"
        << R"("num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": )" << vocab
        << R"(, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "max_position_embeddings": 128)" << more
        << "}";
    return (folder_ / name).string();
  }
  static std::string labels(int count) {
    std::string names = "\"0\": \"LABEL_0\"", ids = "\"LABEL_0\": 0";
    for (int i = 1; i < count; ++i) {
      names += ", \"" + std::to_string(i) + "\": \"LABEL_" + std::to_string(i) + "\"";
      ids += ", \"LABEL_" + std::to_string(i) + "\": " + std::to_string(i);
    }
    return R"(, "architectures": ["LlamaForSequenceClassification"], "id2label": {)" + names +
           R"(}, "label2id": {)" + ids + "}";
  }
  static config::RunConfig run() {
    config::RunConfig config;
    config.model.resolved = model::with_vocab(model::test_outline(2), 64);
    return config;
  }
  template <typename Find>
  static std::string refusal(const Find& find) {
    try {
      find();
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "other_models";
};

TEST_F(OtherModels, ARunWithoutAnyHasNone) {
  EXPECT_TRUE(other_models(run()).empty());
  config::RunConfig config = run();
  config.rl.algorithm = config::RlAlgorithm::kGrpo;
  config.rl.reward = {"exact", "regex:model:x"};
  EXPECT_TRUE(other_models(config).empty());
}

TEST_F(OtherModels, ARewardModelHasOneLabel) {
  config::RunConfig config = run();
  config.rl.algorithm = config::RlAlgorithm::kGrpo;
  config.rl.reward = {"exact", "model:" + write("one", labels(1))};
  ASSERT_EQ(reward_models(config).size(), 1);
  EXPECT_EQ(reward_models(config).front().value.head().numbers, 1);
  config.rl.reward = {"model:" + write("two", labels(2))};
  EXPECT_NE(refusal([&] { reward_models(config); }).find("ends in 2 labels"), std::string::npos);
  config.rl.reward = {"model:" + write("language")};
  EXPECT_NE(refusal([&] { reward_models(config); }).find("ends in a vocabulary"), std::string::npos);
  config.rl.reward = {"model:" + write("small", labels(1), 63)};
  EXPECT_NE(refusal([&] { reward_models(config); }).find("rows for 63 tokens"), std::string::npos);
  config.rl.reward = {"model:nowhere"};
  EXPECT_NE(refusal([&] { reward_models(config); }).find("has no config.json"), std::string::npos);
}

TEST_F(OtherModels, ATeacherIsALanguageModel) {
  config::RunConfig config = run();
  config.teacher.hf = {write("teacher")};
  ASSERT_EQ(teachers(config).size(), 1);
  config.teacher.hf = {write("teacher"), write("classes", labels(3))};
  EXPECT_NE(refusal([&] { teachers(config); }).find("ends in no vocabulary"), std::string::npos);
}

TEST_F(OtherModels, ATeacherWithOtherRowsIsCutToThoseOfBoth) {
  config::RunConfig config = run();
  for (const int64_t rows : {60, 64, 70}) {
    config.teacher.hf = {write("padded", "", rows)};
    const OtherModel teacher = teachers(config).front();
    EXPECT_EQ(teacher.common_rows, rows == 64 ? 0 : std::min<int64_t>(rows, 64));
    EXPECT_EQ(teacher.value.vocab(), 64);
  }
}

TEST_F(OtherModels, SeveralTeachersHaveWeightsAndActs) {
  config::RunConfig config = run();
  config.teacher.hf = {write("teacher"), write("padded", "", 60), write("teacher")};
  const std::vector<OtherModel> found = teachers(config);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].act, "teacher 1");
  EXPECT_EQ(found[1].act, "teacher 2");
  EXPECT_EQ(found[1].common_rows, 60);
  EXPECT_EQ(found[2].common_rows, 0);
  EXPECT_EQ(teacher_weights(config.teacher), std::vector<double>(3, 1.0 / 3));
  config.teacher.weights = {2, 1, 1};
  EXPECT_EQ(teachers(config).size(), 3);
  EXPECT_EQ(teacher_weights(config.teacher), (std::vector<double>{0.5, 0.25, 0.25}));
  config.teacher.weights = {2, 1};
  EXPECT_NE(refusal([&] {
              teachers(config);
            }).find("teacher.weights has 2 numbers, but teacher.hf names 3 folders"),
            std::string::npos);
}

TEST_F(OtherModels, ATeacherMayBeInCodes) {
  config::RunConfig config = run();
  config.teacher.hf = {write("teacher")};
  const cost::MemoryModel memory{.element_bytes = 4, .owner_bytes_per_parameter = 16};
  const int64_t whole = other_bytes(other_models(config), memory, 1);
  config.teacher.base = base::WeightFormat::kNf4;
  const OtherModel coded = teachers(config).front();
  EXPECT_EQ(coded.value.base(), (model::BaseFormat{base::WeightFormat::kNf4, 4}));
  int64_t matrices = 0, codes = 0;
  for (const model::Bucket& bucket : model::parameter_table(coded.value).buckets) {
    if (!bucket.coded) continue;
    codes += bucket.size * 4;
    matrices += model::plain_bucket(bucket).size * 4;
  }
  EXPECT_GT(matrices, 7 * codes);
  EXPECT_EQ(other_bytes(other_models(config), memory, 1), whole - matrices + codes);
  config::RunConfig rewarded = run();
  rewarded.rl.algorithm = config::RlAlgorithm::kGrpo;
  rewarded.rl.reward = {"model:" + write("one", labels(1))};
  rewarded.rl.reward_base = base::WeightFormat::kNf4;
  EXPECT_TRUE(reward_models(rewarded).front().value.base().coded());
  // Rows of 32 numbers are no whole blocks.
  config.teacher.base = base::WeightFormat::kInt8;
  EXPECT_NE(refusal([&] { teachers(config); }).find("[config] teacher.base is int8, but "),
            std::string::npos);
}

TEST_F(OtherModels, WhatElseIsLearntIsRefusedBesideATeacher) {
  config::RunConfig config = run();
  config.teacher.hf = {write("teacher")};
  config.train.z_loss = 1e-4;
  EXPECT_NE(refusal([&] { teachers(config); }).find("train.z_loss"), std::string::npos);
  config.train.z_loss = 0;
  config.rl.algorithm = config::RlAlgorithm::kGrpo;
  EXPECT_NE(refusal([&] { teachers(config); }).find("rl.algorithm"), std::string::npos);
  config.rl.algorithm = config::RlAlgorithm::kNone;
  config.head.kind = config::HeadUse::kValue;
  EXPECT_NE(refusal([&] { teachers(config); }).find("head.kind"), std::string::npos);
}

TEST_F(OtherModels, ACriticHasAValueOfEachToken) {
  config::RunConfig config = run();
  EXPECT_TRUE(critics(config).empty());
  config.rl.algorithm = config::RlAlgorithm::kPpo;
  config.rl.critic = write("reward", labels(1));
  const OtherModel critic = critics(config).front();
  EXPECT_TRUE(critic.trained);
  EXPECT_EQ(critic.value.head().kind, model::HeadKind::kTokens);
  EXPECT_EQ(critic.value.head().numbers, 1);
}

TEST_F(OtherModels, RanksOwnEvenSlices) {
  config::RunConfig config = run();
  config.teacher.hf = {write("teacher")};
  const int64_t parameters = model::parameter_table(teachers(config).front().value).size();
  const cost::MemoryModel memory{.element_bytes = 2, .owner_bytes_per_parameter = 16};
  const int64_t tables = cost::kSmallTensorBytes;
  EXPECT_EQ(other_bytes(other_models(config), memory, 1), tables + 2 * parameters);
  EXPECT_LE(other_bytes(other_models(config), memory, 3), tables + 2 * (parameters / 3 + 20));
  OtherModel trained = teachers(config).front();
  trained.trained = true;
  // Trained: with narrow copies of its masters, which are wider than the compute type.
  EXPECT_EQ(other_bytes({trained}, memory, 1), tables + (16 + 2) * parameters);
  EXPECT_EQ(other_bytes({trained}, {.element_bytes = 4, .owner_bytes_per_parameter = 16}, 1),
            tables + 16 * parameters);
}

TEST_F(OtherModels, AReferenceTakesMastersOfWhatIsTrained) {
  config::RunConfig config = run();
  const int64_t parameters = model::parameter_table(*config.model.resolved).size();
  const cost::MemoryModel memory{.element_bytes = 2, .owner_bytes_per_parameter = 16};
  EXPECT_EQ(bytes_beside(config, memory, 1), 0);
  config.rl.algorithm = config::RlAlgorithm::kGrpo;
  EXPECT_EQ(bytes_beside(config, memory, 1), 0);
  config.rl.kl = 0.1;
  EXPECT_EQ(bytes_beside(config, memory, 1), 4 * parameters);
  EXPECT_LE(bytes_beside(config, memory, 3), 4 * (parameters / 3 + 20));
  config.rl.kl = 0;
  config.rl.algorithm = config::RlAlgorithm::kDpo;
  EXPECT_EQ(bytes_beside(config, memory, 1), 4 * parameters);
  model::adapt(*config.model.resolved, {4, 16, {"q_proj"}});
  EXPECT_LT(bytes_beside(config, memory, 1), parameters / 4);
}

TEST_F(OtherModels, RoomIsTakenOffTheDevice) {
  config::RunConfig config = run();
  config.rl.algorithm = config::RlAlgorithm::kDpo;
  cost::MemoryModel memory{.device_bytes = 1 << 30, .element_bytes = 4, .owner_bytes_per_parameter = 16};
  const int64_t beside = leave_room_beside(config, memory, 2);
  EXPECT_EQ(memory.device_bytes, (1 << 30) - beside);
  memory.device_bytes = beside;
  EXPECT_THROW(leave_room_beside(config, memory, 2), base::InfeasibleError);
  memory.device_bytes = 0;  // unknown
  EXPECT_EQ(leave_room_beside(config, memory, 2), beside);
  EXPECT_EQ(memory.device_bytes, 0);
}

}  // namespace
}  // namespace sluice::session
