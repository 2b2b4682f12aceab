#include "checkpoint/conversion.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/save.h"
#include "checkpoint/test_directory.h"

namespace sluice::checkpoint {
namespace {

void fill(int bucket, base::Interval interval, float* values) {
  for (int64_t e = interval.begin; e < interval.end; ++e) {
    values[e - interval.begin] =
        static_cast<float>(base::random_normal(9, static_cast<uint64_t>(bucket), static_cast<uint64_t>(e)));
  }
}

TEST(Conversion, ImportThenExportReturnsTheSameBytes) {
  const TestDirectory directory;
  const model::ParameterTable table = model::parameter_table(
      {.layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn_hidden = 12, .vocab = 19});
  export_hugging_face(directory / "a", table, fill);
  Checkpoint checkpoint(import_checkpoint(HuggingFaceModel(directory / "a"), directory / "checkpoints"));
  EXPECT_EQ(latest(directory / "checkpoints")->step, 0);
  checkpoint.require_model(table.shape, TensorType::kFloat32);
  float moment = 1;
  checkpoint.read(2, {5, 6}, State::kExpAvgSq, &moment);
  EXPECT_EQ(moment, 0);
  export_checkpoint(checkpoint, directory / "b");
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(base::read_file(directory / "a" / file), base::read_file(directory / "b" / file)) << file;
  }
}

// A folder with a tokenizer, token ids in its config.json, and something that is not taken along.
void write_model_folder(const std::filesystem::path& folder, const model::ParameterTable& table) {
  export_hugging_face(folder, table, fill, {.positions = 1024});
  base::Json config = base::read_json(folder / "config.json");
  config["bos_token_id"] = 1;
  config["eos_token_id"] = {2, 5};
  base::write_json(folder / "config.json", config);
  for (const char* file : {"tokenizer.json", "generation_config.json", "chat_template.jinja", "notes.txt"}) {
    base::write_file_atomically(folder / file, std::string("content of ") + file);
  }
}

model::ParameterTable small_table() {
  return model::parameter_table(
      {.layers = 1, .hidden = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn_hidden = 12, .vocab = 19});
}

TEST(Conversion, CompanionsOfAModelComeOutAsTheyWentIn) {
  const TestDirectory directory;
  write_model_folder(directory / "a", small_table());
  Checkpoint checkpoint(import_checkpoint(HuggingFaceModel(directory / "a"), directory / "checkpoints"));
  export_checkpoint(checkpoint, directory / "b");
  for (const char* file :
       {"tokenizer.json", "generation_config.json", "chat_template.jinja", "config.json"}) {
    EXPECT_EQ(base::read_file(directory / "a" / file), base::read_file(directory / "b" / file)) << file;
  }
  EXPECT_FALSE(std::filesystem::exists(directory / "b/notes.txt"));
}

TEST(Conversion, PositionsGrowWithTheRunAndNeverShrinkUnasked) {
  const TestDirectory directory;
  write_model_folder(directory / "a", small_table());
  const std::vector<Companion> companions = read_companions(directory / "a");
  const auto positions = [&](const ExportedConfig& options) {
    const base::Json config = exported_config(companions, small_table().shape, options);
    EXPECT_EQ(config["eos_token_id"], base::Json({2, 5}));
    return config["max_position_embeddings"].get<int64_t>();
  };
  EXPECT_EQ(positions({}), 1024);
  EXPECT_EQ(positions({.least_positions = 128}), 1024);
  EXPECT_EQ(positions({.least_positions = 4096}), 4096);
  EXPECT_EQ(positions({.least_positions = 4096, .positions = 512}), 512);
}

TEST(Conversion, ConfigOfAnotherShapeIsNotTaken) {
  const TestDirectory directory;
  write_model_folder(directory / "a", small_table());
  model::Shape other = small_table().shape;
  other.vocab = 23;
  const base::Json config = exported_config(read_companions(directory / "a"), other, {.least_positions = 64});
  EXPECT_EQ(config["vocab_size"], 23);
  EXPECT_EQ(config["max_position_embeddings"], 64);
  EXPECT_FALSE(config.contains("eos_token_id"));
}

TEST(Conversion, DamagedCompanionIsNamed) {
  const TestDirectory directory;
  write_model_folder(directory / "a", small_table());
  Checkpoint checkpoint(import_checkpoint(HuggingFaceModel(directory / "a"), directory / "checkpoints"));
  base::write_file_atomically(checkpoint.directory() / "model/tokenizer.json", "content of tokenizer.jsoN");
  EXPECT_THAT(message_of<DamagedCheckpoint>([&] { checkpoint.verify(); }),
              testing::HasSubstr("tokenizer.json has checksum"));
}

}  // namespace
}  // namespace sluice::checkpoint
