#include "run/corpus_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/test_directory.h"

namespace sluice::run {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

class CorpusTokenizer : public testing::Test {
 protected:
  // Adds a folder with a corpus, and a tokenizer where `file` names one.
  void add(const std::string& folder, const std::string& file = "", const std::string& bytes = "") {
    base::make_directories(directory_ / folder);
    if (!file.empty()) base::write_file_atomically(directory_ / folder / file, bytes);
    data_.train.emplace_back((directory_ / folder / "corpus").string(), 1.0);
  }
  std::vector<checkpoint::Companion> added(std::vector<checkpoint::Companion> companions = {}) const {
    add_corpus_tokenizer(data_, {}, companions);
    return companions;
  }

  checkpoint::TestDirectory directory_;
  config::DataConfig data_;
};

TEST_F(CorpusTokenizer, GoesWithTheModelWhereAllCorporaHaveTheSame) {
  add("a", "tokenizer.model", "pieces");
  add("b", "tokenizer.model", "pieces");
  EXPECT_THAT(added(), ElementsAre(Field(&checkpoint::Companion::bytes, "pieces")));
}

TEST_F(CorpusTokenizer, IsLeftOutWhereCorporaDifferOrHaveNone) {
  add("a", "tokenizer.model", "pieces");
  add("b", "tokenizer.model", "others");
  EXPECT_THAT(added(), IsEmpty());
  data_ = {};
  add("c", "tokenizer.json", "{}");
  add("d");
  EXPECT_THAT(added(), IsEmpty());
}

// Without these files the user of an exported folder cannot know which tokens begin and end a text.
TEST_F(CorpusTokenizer, BringsItsSettings) {
  add("web", "tokenizer.json", "{}");
  add("chats", "tokenizer.json", "{}");
  base::write_file_atomically(directory_ / "web/tokenizer_config.json", "eos");
  base::write_file_atomically(directory_ / "chats/tokenizer_config.json", "eos");
  base::write_file_atomically(directory_ / "chats/chat_template.jinja", "turns");
  const auto bytes = [](const char* of) { return Field(&checkpoint::Companion::bytes, of); };
  EXPECT_THAT(added(), ElementsAre(bytes("{}"), bytes("turns"), bytes("eos")));
  EXPECT_THAT(added({{"tokenizer_config.json", "own"}}),
              ElementsAre(bytes("own"), bytes("{}"), bytes("turns")));
  base::write_file_atomically(directory_ / "chats/tokenizer_config.json", "other");
  EXPECT_THAT(added(), ElementsAre(bytes("{}"), bytes("turns")));
}

TEST_F(CorpusTokenizer, OfTheModelItselfComesFirst) {
  add("a", "tokenizer.model", "pieces");
  EXPECT_THAT(added({{"tokenizer.json", "its own"}}),
              ElementsAre(Field(&checkpoint::Companion::bytes, "its own")));
  EXPECT_EQ(added({{"config.json", "{}"}}).size(), 2);
}

}  // namespace
}  // namespace sluice::run
