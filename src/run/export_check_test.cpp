#include "run/export_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/find.h"
#include "checkpoint/test_directory.h"
#include "model/test_outline.h"

namespace sluice::run {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void fill_normal(int bucket, base::Interval interval, float* values) {
  for (int64_t e = interval.begin; e < interval.end; ++e)
    values[e - interval.begin] =
        static_cast<float>(base::random_normal(7, static_cast<uint64_t>(bucket), static_cast<uint64_t>(e)));
}

class ExportChecks : public testing::Test {
 protected:
  ExportChecks() {
    checkpoint::export_hugging_face(directory_ / "m", model::parameter_table(model::exported_outline()),
                                    fill_normal);
    base::write_file_atomically(directory_ / "m/generation_config.json", R"({"eos_token_id": [2, 5]})");
    base::write_file_atomically(directory_ / "m/chat_template.jinja", "turns");
    base::write_file_atomically(directory_ / "m/tokenizer.json", "{}");
    const checkpoint::HuggingFaceModel model(directory_ / "m");
    checkpoint_.emplace(checkpoint::import_checkpoint(model, directory_ / "imported"));
    options_.companions = checkpoint_->companions();
    options_.record = checkpoint::folder_record(options_.companions);
  }

  // Checks an export after a modification; returns the message of the failure.
  std::string fault(const std::function<void(const fs::path&)>& happen) {
    fs::remove_all(directory_ / "out");
    checkpoint::export_checkpoint(*checkpoint_, directory_ / "out", options_);
    happen(directory_ / "out");
    return checkpoint::message_of<base::RunError>(
        [&] { checked_ = check_export(*checkpoint_, directory_ / "out", options_, std::nullopt); });
  }
  static void change(const fs::path& config, const char* key, const base::Json& value) {
    base::Json json = base::read_json(config);
    json[key] = value;
    base::write_json(config, json);
  }

  checkpoint::TestDirectory directory_;
  std::optional<checkpoint::Checkpoint> checkpoint_;
  checkpoint::ExportOptions options_;
  ExportCheck checked_;
};

TEST_F(ExportChecks, SayWhatTheyFound) {
  for (const checkpoint::TensorType type :
       {checkpoint::TensorType::kFloat32, checkpoint::TensorType::kBFloat16}) {
    options_.type = type;
    EXPECT_EQ(fault([](const fs::path&) {}), "");
    EXPECT_THAT(checked_.line(), HasSubstr("3 sequences; end tokens 2, 5; a chat template; tokenizer.json"));
    EXPECT_GT(checked_.loss, 1.0);
  }
}

TEST_F(ExportChecks, NameWhatDiffers) {
  EXPECT_THAT(fault([](const fs::path& out) { change(out / "config.json", "rope_theta", 500.0); }),
              HasSubstr("describes another model"));
  EXPECT_THAT(fault([](const fs::path& out) { change(out / "generation_config.json", "eos_token_id", 2); }),
              HasSubstr("its end tokens are 2 where the run's are 2, 5"));
  EXPECT_THAT(fault([](const fs::path& out) { fs::remove(out / "chat_template.jinja"); }),
              HasSubstr("its chat template is another"));
  EXPECT_THAT(fault([](const fs::path& out) { base::write_file_atomically(out / "tokenizer.json", "{ }"); }),
              HasSubstr("its tokenizer.json is another"));
  EXPECT_THAT(fault([&](const fs::path& out) {
                std::string bytes = base::read_file(out / "model.safetensors");
                bytes[bytes.size() - 2] ^= 0x40;
                base::write_file_atomically(out / "model.safetensors", bytes);
              }),
              HasSubstr("its loss is"));
}

}  // namespace
}  // namespace sluice::run
