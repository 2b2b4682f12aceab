#include "session/public_models.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/parameter_count.h"

namespace sluice::session {
namespace {

// Published parameter counts in billions: from the checkpoint's tensors if its index has them, else from the
// model's card; without heads that predict several tokens.
TEST(PublicModels, HaveAsManyParametersAsPublished) {
  const std::vector<std::pair<std::string, int64_t>> exact = {
      {"llama-3.1-8b", 8'030'261'248}, {"llama-3.1-70b", 70'553'706'496},  {"llama-3.2-1b", 1'235'814'400},
      {"llama-2-7b", 6'738'415'616},   {"qwen2.5-7b", 7'615'616'512},      {"qwen2.5-0.5b", 494'032'768},
      {"qwen3-8b", 8'190'735'360},     {"mistral-7b-v0.3", 7'248'023'552}, {"mixtral-8x7b", 46'702'792'704},
      {"olmoe-1b-7b", 6'919'161'856},  {"smollm2-135m", 134'515'008}};
  for (const auto& [name, count] : exact)
    EXPECT_EQ(model::parameter_count(model_to_plan(name)), count) << name;
  const std::vector<std::pair<std::string, double>> rounded = {
      {"qwen3-30b-a3b", 30.5}, {"qwen3-235b-a22b", 235}, {"gpt-oss-20b", 20.9}, {"gpt-oss-120b", 116.8},
      {"deepseek-v3", 671},    {"glm-4.5-air", 106.8},   {"phi-4", 14.7},       {"mixtral-8x22b", 140.6}};
  for (const auto& [name, billions] : rounded)
    EXPECT_NEAR(static_cast<double>(model::parameter_count(model_to_plan(name))) / 1e9, billions,
                0.006 * billions)
        << name;
}

TEST(PublicModels, AreAllPlannedByAnyCase) {
  for (const std::string& name : known_models()) EXPECT_NO_THROW(model_to_plan(name)) << name;
  EXPECT_EQ(model_to_plan("Qwen3-30B-A3B"), model_to_plan("qwen3-30b-a3b"));
  EXPECT_EQ(model_to_plan("llama-7b"), model_to_plan("LLaMA-7B"));
}

TEST(PublicModels, UnknownNamesAreAnsweredWithTheNearest) {
  for (const char* name : {"qwen3-30b-a4b", "", "qwen", "no/such/folder"}) {
    try {
      static_cast<void>(model_to_plan(name));
      ADD_FAILURE() << name;
    } catch (const base::InputError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("'" + std::string(name) + "'"), std::string::npos) << message;
      EXPECT_NE(message.find("qwen3-30b-a3b"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace sluice::session
