#include "run/other_tokenizers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "model/test_outline.h"

namespace sluice::run {
namespace {

namespace fs = std::filesystem;

class OtherTokenizers : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    config_.model.resolved = model::with_vocab(model::test_outline(2), 64);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, int64_t vocab = 64) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "config.json")
        << R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, )"
        << R"("num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": )" << vocab
        << R"(, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "max_position_embeddings": 128})";
    return (folder_ / name).string();
  }
  // A tokenizer of so many words, "w0" and so on.
  void write_tokenizer(const std::string& name, int words, const std::string& letter = "w") const {
    std::string vocabulary;
    for (int i = 0; i < words; ++i) vocabulary += base::text(i == 0 ? "" : ", ", "\"", letter, i, "\": ", i);
    std::ofstream(folder_ / name / "tokenizer.json")
        << R"({"model": {"type": "WordLevel", "vocab": {)" << vocabulary << "}}}";
  }
  // The reason why the teacher is refused; empty: it is accepted.
  std::string refusal() const {
    try {
      require_tokenizer(session::teachers(config_).front(), config_);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  }
  void expect_refused_for(const std::string& reason) const {
    EXPECT_NE(refusal().find(reason), std::string::npos) << refusal();
  }

  config::RunConfig config_;
  const fs::path folder_ = fs::path(testing::TempDir()) / "other_tokenizers";
};

TEST_F(OtherTokenizers, RowsThatOnlyPadMayDiffer) {
  for (const int64_t rows : {60, 70}) {
    config_.teacher.hf = {write("padded", rows)};
    write_tokenizer("padded", 58);
    EXPECT_EQ(refusal(), "");
    const int unmatched = static_cast<int>(std::min<int64_t>(rows, 64)) + 1;
    // A token that only one of both models has a row for.
    write_tokenizer("padded", unmatched);
    expect_refused_for("not only padding differs");
    write_tokenizer("padded", 58);
    config_.model.hf = write("student");
    write_tokenizer("student", unmatched);
    expect_refused_for("not only padding differs");
    config_.model.hf.clear();
  }
}

TEST_F(OtherTokenizers, OtherRowsNeedATokenizerToTellBy) {
  config_.teacher.hf = {write("larger", 65)};
  expect_refused_for("rows for 65 tokens, but the model that is trained has 64");
  expect_refused_for("put its tokenizer into its folder");
}

TEST_F(OtherTokenizers, ATeacherOfAnotherTokenizerIsNamed) {
  config_.teacher.hf = {write("teacher")};
  config_.model.hf = write("student");
  write_tokenizer("teacher", 58, "v");
  EXPECT_EQ(refusal(), "");
  write_tokenizer("student", 58);
  expect_refused_for("another tokenizer than model.hf");
  expect_refused_for("id 0 is 'w0'");
}

}  // namespace
}  // namespace sluice::run
