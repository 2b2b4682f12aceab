#include "model/sentence_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/test_outline.h"

namespace sluice::model {
namespace {

namespace fs = std::filesystem;
using base::Json;
using testing::HasSubstr;

class SentenceModules : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / base::text("sluice-modules-", getpid());
    fs::create_directories(folder_ / "1_Pooling");
    base::write_json(folder_ / "config.json", config_json(outline_of_2_heads()));
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_modules(const Json& pooling, const char* third = "Normalize") {
    const auto module = [](const char* path, const std::string& type) {
      return Json{{"path", path}, {"type", "sentence_transformers.models." + type}};
    };
    base::write_json(
        folder_ / "modules.json",
        Json::array({module("", "Transformer"), module("1_Pooling", "Pooling"), module("2_Third", third)}));
    base::write_json(folder_ / "1_Pooling" / "config.json", pooling);
  }
  HeadStyle head() const { return outline_from_hugging_face(folder_config(folder_), "config.json").head; }
  std::string fault() const {
    try {
      folder_config(folder_);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TEST_F(SentenceModules, AFolderWithoutThemIsItsConfig) {
  EXPECT_EQ(folder_config(folder_), config_json(outline_of_2_heads()));
}

TEST_F(SentenceModules, PoolingIsReadAsOldAndNewFilesSayIt) {
  write_modules({{"pooling_mode_cls_token", false}, {"pooling_mode_mean_tokens", true}});
  EXPECT_EQ(head(), (HeadStyle{.kind = HeadKind::kRows, .pooling = Pooling::kMean}));
  write_modules({{"pooling_mode", "cls"}});
  EXPECT_EQ(head().pooling, Pooling::kCls);
  write_modules({{"pooling_mode_lasttoken", true}, {"include_prompt", true}});
  EXPECT_EQ(head().pooling, Pooling::kLast);
}

TEST_F(SentenceModules, OthersAreNamed) {
  write_modules({{"pooling_mode_max_tokens", true}});
  EXPECT_THAT(fault(), HasSubstr("pooling_mode_max_tokens is on"));
  write_modules({{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}});
  EXPECT_THAT(fault(), HasSubstr("are both on"));
  write_modules({{"pooling_mode", Json::array({"cls", "mean"})}});
  EXPECT_THAT(fault(), HasSubstr("pooling_mode is"));
  write_modules({{"pooling_mode_mean_tokens", true}, {"include_prompt", false}});
  EXPECT_THAT(fault(), HasSubstr("include_prompt is false"));
  write_modules({{"pooling_mode_cls_token", true}, {"include_prompt", false}});
  EXPECT_EQ(fault(), "") << "the first token is that of the instruction";
  write_modules({{"pooling_mode", "mean"}}, "Dense");
  EXPECT_THAT(fault(), HasSubstr("the module Dense in '2_Third'"));
}

}  // namespace
}  // namespace sluice::model
