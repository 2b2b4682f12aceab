#include "run/learnt_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/test_directory.h"
#include "corpus/indexed.h"

namespace sluice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kTokenizer =
    R"({"added_tokens": [{"id": 11, "content": "<|im_end|>", "special": true}], "model": {"vocab": {"y": 1}}})";

class LearntTurns : public testing::Test {
 protected:
  // A corpus of answers that end with <|im_end|>, rendered by this template.
  void add(const std::string& folder, const std::string& chat_template) {
    base::make_directories(directory_ / folder);
    corpus::IndexedWriter writer(directory_ / folder / "corpus",
                                 {.vocabulary = 20, .mask = corpus::MaskFile::kWrite});
    const std::vector<int32_t> tokens{1, 1, 11};
    const std::vector<uint8_t> mask{0, 1, 1};
    writer.add(tokens, mask);
    writer.commit();
    base::write_file_atomically(directory_ / folder / "tokenizer.json", kTokenizer);
    base::write_file_atomically(directory_ / folder / "chat_template.jinja", chat_template);
    data_.train.emplace_back((directory_ / folder / "corpus").string(), 1.0);
  }
  std::vector<checkpoint::Companion> added(std::vector<checkpoint::Companion> companions = {}) const {
    add_learnt_turns(data_, {}, companions);
    return companions;
  }

  checkpoint::TestDirectory directory_;
  config::DataConfig data_;
};

TEST_F(LearntTurns, GoWithTheModel) {
  add("a", "turns");
  const auto companions = added({{"config.json", R"({"eos_token_id": 7, "bos_token_id": 6})"},
                                 {"tokenizer_config.json", R"({"chat_template": "its own"})"}});
  EXPECT_EQ(chat_template_in(companions), "turns");
  EXPECT_THAT(end_tokens_in(companions), ElementsAre(7, 11));
  EXPECT_EQ(companions.back().name, "generation_config.json");
  EXPECT_EQ(base::parse_json(companions.back().bytes, "").at("bos_token_id"), 6);
  EXPECT_EQ(added(companions).size(), companions.size()) << "and are added once";
}

TEST_F(LearntTurns, ChangeNothingThatIsThere) {
  add("a", "turns");
  const std::string generation = R"({"eos_token_id": [11, 3]})";
  const auto companions = added(
      {{"generation_config.json", generation}, {"tokenizer_config.json", R"({"chat_template": "turns"})"}});
  EXPECT_EQ(companions.size(), 2U);
  EXPECT_EQ(companions.front().bytes, generation);
}

TEST_F(LearntTurns, OfDifferentTemplatesLeaveTheModels) {
  add("a", "turns");
  add("b", "others");
  EXPECT_EQ(chat_template_in(added({{"chat_template.jinja", "own"}})), "own");
}

std::vector<std::string> templates_of(const std::vector<checkpoint::Companion>& companions) {
  std::vector<std::string> files;
  for (const checkpoint::Companion& file : companions) {
    if (file.name.ends_with(".jinja")) files.push_back(file.name + "=" + file.bytes);
  }
  return files;
}

TEST_F(LearntTurns, BringAllTemplatesThatChatsChooseFrom) {
  add("a", "turns");
  const auto beside = directory_ / "a/additional_chat_templates";
  base::make_directories(beside);
  base::write_file_atomically(beside / "tool_use.jinja", "tools");
  base::write_file_atomically(beside / "README", "no template");
  const std::string mine = "additional_chat_templates/rag.jinja";
  EXPECT_THAT(templates_of(added({{"chat_template.jinja", "own"}, {mine, "documents"}})),
              ElementsAre("chat_template.jinja=turns", "additional_chat_templates/tool_use.jinja=tools"))
      << "in place of all that the model had";
  EXPECT_THAT(templates_of(added({{"chat_template.jinja", "turns"}, {mine, "documents"}})),
              ElementsAre("chat_template.jinja=turns", mine + "=documents",
                          "additional_chat_templates/tool_use.jinja=tools"))
      << "beside those of the model that has the same default";
  EXPECT_THAT(templates_of(added({{"tokenizer_config.json", R"({"chat_template": "turns"})"}})),
              ElementsAre("additional_chat_templates/tool_use.jinja=tools"));
}

TEST_F(LearntTurns, AreNoneWithoutConversations) {
  base::make_directories(directory_ / "text");
  base::write_file_atomically(directory_ / "text/chat_template.jinja", "turns");
  data_.train.emplace_back((directory_ / "text/corpus").string(), 1.0);
  EXPECT_THAT(added(), IsEmpty());
}

TEST_F(LearntTurns, DocumentsEndWithTheChosenToken) {
  base::make_directories(directory_ / "text");
  base::write_file_atomically(directory_ / "text/tokenizer.json", kTokenizer);
  base::write_file_atomically(directory_ / "text/lengths.json", R"({"end_id": 11})");
  data_.train.emplace_back((directory_ / "text/corpus").string(), 1.0);
  EXPECT_THAT(end_tokens_in(added({{"config.json", R"({"eos_token_id": 7})"}})), ElementsAre(7, 11));
  EXPECT_EQ(added({{"config.json", R"({"eos_token_id": 11})"}}).size(), 1U);
  EXPECT_THAT(added(), IsEmpty()) << "a model that lists no end goes by its tokenizer's";
}

TEST(EndTokens, AreAlsoAMultimodalModelsTexts) {
  EXPECT_THAT(
      end_tokens_in({{"config.json", R"({"model_type": "qwen3_5", "text_config": {"eos_token_id": 4}})"}}),
      ElementsAre(4));
  EXPECT_THAT(end_tokens_in({{"config.json", R"({"eos_token_id": null})"}}), IsEmpty());
  EXPECT_EQ(
      chat_template_in(
          {{"tokenizer_config.json",
            R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})"}}),
      "d");
}

}  // namespace
}  // namespace sluice::run
