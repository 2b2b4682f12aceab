#include "checkpoint/conversion.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "checkpoint/exported_config.h"
#include "checkpoint/find.h"
#include "checkpoint/optimizer_folder.h"
#include "checkpoint/save.h"
#include "checkpoint/test_directory.h"
#include "model/test_outline.h"

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
  const model::ParameterTable table = model::parameter_table(model::saved_outline(2));
  export_hugging_face(directory / "a", table, fill);
  Checkpoint checkpoint(import_checkpoint(HuggingFaceModel(directory / "a"), directory / "checkpoints"));
  EXPECT_EQ(latest(directory / "checkpoints")->step, 0);
  checkpoint.require_model(table.model, TensorType::kFloat32);
  float moment = 1;
  checkpoint.read(2, {5, 6}, State::kExpAvgSq, &moment);
  EXPECT_EQ(moment, 0);
  export_checkpoint(checkpoint, directory / "b");
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(base::read_file(directory / "a" / file), base::read_file(directory / "b" / file)) << file;
  }
}

// A folder with a tokenizer, token ids in its config.json, and a file that import leaves out.
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

model::ParameterTable small_table() { return model::parameter_table(model::saved_outline(1)); }

TEST(Conversion, CompanionsOfAModelComeOutAsTheyWentIn) {
  const TestDirectory directory;
  write_model_folder(directory / "a", small_table());
  Checkpoint checkpoint(import_checkpoint(HuggingFaceModel(directory / "a"), directory / "checkpoints"));
  export_checkpoint(checkpoint, directory / "b");
  for (const char* file :
       {"tokenizer.json", "generation_config.json", "chat_template.jinja", "config.json"}) {
    EXPECT_EQ(base::read_file(directory / "a" / file), base::read_file(directory / "b" / file)) << file;
  }
  EXPECT_TRUE(std::filesystem::exists(directory / "b/notes.txt"));
}

TEST(Conversion, PositionsGrowWithTheRunAndNeverShrinkUnasked) {
  const TestDirectory directory;
  write_model_folder(directory / "a", small_table());
  const std::vector<Companion> companions = read_companions(directory / "a");
  const auto positions = [&](const ExportedConfig& options) {
    const base::Json config = exported_config(companions, small_table().model, options);
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
  model::Outline other = small_table().model.outline();
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
  base::write_file_atomically((checkpoint.directory() / "model/tokenizer.json").path(),
                              "content of tokenizer.jsoN");
  EXPECT_THAT(message_of<DamagedCheckpoint>([&] { checkpoint.verify(); }),
              testing::HasSubstr("tokenizer.json has checksum"));
}

// A committed checkpoint of two ranks after seven steps, whose second moments are positive.
std::filesystem::path write_trained(const std::filesystem::path& root, const model::ParameterTable& table) {
  Manifest manifest{.step = 7, .world_size = 2, .model = table.model};
  manifest.sampler = {{"step", 7}, {"cursors", base::Json::array()}};
  manifest.config = "[train]\nsteps = 9\n";
  const std::filesystem::path directory = prepare_save(root, manifest.step).path();
  for (int rank = 0; rank < manifest.world_size; ++rank) {
    std::vector<std::vector<float>> values;
    std::vector<OwnerState> owned;
    for (const model::Bucket& bucket : table.buckets) {
      const int64_t middle = bucket.size / 3;
      const base::Interval part = rank == 0 ? base::Interval{0, middle} : base::Interval{middle, bucket.size};
      for (int state = 0; state < 3; ++state) {
        std::vector<float>& of_state = values.emplace_back(static_cast<size_t>(part.size()));
        fill(100 * state + bucket.index, part, of_state.data());
        if (state == 2) std::ranges::transform(of_state, of_state.begin(), [](float v) { return v * v; });
      }
      owned.push_back(
          {part, (values.end() - 3)->data(), (values.end() - 2)->data(), (values.end() - 1)->data()});
    }
    manifest.files.push_back(write_rank_file(directory, rank, manifest.type, owned));
  }
  commit_save(directory, manifest, {});
  return directory;
}

std::vector<float> values_of(Checkpoint& checkpoint, const model::Bucket& bucket, State state) {
  std::vector<float> values(static_cast<size_t>(bucket.size));
  checkpoint.read(bucket.index, {0, bucket.size}, state, values.data());
  return values;
}

TEST(Conversion, OptimizerStateComesBackToTheBitWhateverTheTypeOfTheWeights) {
  const TestDirectory directory;
  const model::ParameterTable table = small_table();
  Checkpoint trained(write_trained(directory / "checkpoints", table));
  for (const TensorType type : {TensorType::kFloat32, TensorType::kBFloat16}) {
    const std::string name = config_name(type);
    export_checkpoint(trained, directory / name, {.type = type, .max_shard_bytes = 1000},
                      Contents::kTraining);
    Checkpoint imported(
        import_checkpoint(HuggingFaceModel(directory / name), directory / (name + "-imported")));
    EXPECT_EQ(imported.directory().filename(), "step-7");
    EXPECT_EQ(imported.manifest().sampler, trained.manifest().sampler);
    EXPECT_EQ(imported.manifest().config, trained.manifest().config);
    for (const model::Bucket& bucket : table.buckets) {
      for (const State state : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
        EXPECT_EQ(values_of(imported, bucket, state), values_of(trained, bucket, state)) << name;
      }
    }
  }
}

TEST(Conversion, WeightsAloneAreAStepZero) {
  const TestDirectory directory;
  Checkpoint trained(write_trained(directory / "checkpoints", small_table()));
  export_checkpoint(trained, directory / "a", {}, Contents::kTraining);
  const HuggingFaceModel model(directory / "a");
  Checkpoint imported(import_checkpoint(model, directory / "b", Contents::kWeights));
  EXPECT_EQ(imported.manifest().step, 0);
  EXPECT_TRUE(imported.manifest().sampler.is_null());
}

TEST(Conversion, OptimizerStateThatDoesNotFitIsNamedWithTheWayOut) {
  const TestDirectory directory;
  const model::ParameterTable table = small_table();
  Checkpoint trained(write_trained(directory / "checkpoints", table));
  const std::filesystem::path folder = directory / "a";
  export_checkpoint(trained, folder, {}, Contents::kTraining);
  const auto fault = [&] {
    const HuggingFaceModel model(folder);
    return message_of<base::InputError>([&] { import_checkpoint(model, directory / "b"); });
  };
  const base::Json state = base::read_json(folder / "optimizer/state.json");
  const std::filesystem::path second = folder / "optimizer/exp_avg_sq.safetensors";
  std::filesystem::rename(second, folder / "elsewhere");
  EXPECT_THAT(fault(), testing::HasSubstr("optimizer/exp_avg_sq.safetensors is missing"));
  std::filesystem::rename(folder / "elsewhere", second);

  const auto ones = [](int, base::Interval interval, float* values) {
    std::fill_n(values, interval.size(), 1.0F);
  };
  write_tensors(folder, kWeightsStem, table, ones, {});  // trained on elsewhere since
  EXPECT_THAT(fault(), testing::AllOf(testing::HasSubstr("model.safetensors has hash"),
                                      testing::HasSubstr("--weights-only")));

  base::Json changed = state;
  changed["step"] = 8;
  base::write_json(folder / "optimizer/state.json", changed);
  EXPECT_THAT(fault(), testing::HasSubstr("the sampler stands at step 7, the optimiser at 8"));

  // Another program's state: a step and two files of moments.
  base::write_json(folder / "optimizer/state.json", {{"schema", "sluice.optimizer/1"}, {"step", 30}});
  write_tensors(folder / "optimizer", "exp_avg_sq", table, fill, {});
  EXPECT_THAT(fault(), testing::HasSubstr("means of squares are not negative"));
  EXPECT_FALSE(latest(directory / "b"));
  write_tensors(folder / "optimizer", "exp_avg_sq", table, ones, {});
  EXPECT_EQ(Checkpoint(import_checkpoint(HuggingFaceModel(folder), directory / "b")).manifest().step, 30);
}

TEST(Conversion, Float64StatesAreNotExported) {
  const TestDirectory directory;
  const model::ParameterTable table = small_table();
  Manifest manifest{.step = 1, .model = table.model, .type = TensorType::kFloat64};
  const std::filesystem::path written = prepare_save(directory / "checkpoints", 1).path();
  std::vector<std::vector<double>> zeros;
  std::vector<OwnerState> owned;
  for (const model::Bucket& bucket : table.buckets) {
    const double* data = zeros.emplace_back(static_cast<size_t>(bucket.size)).data();
    owned.push_back({{0, bucket.size}, data, data, data});
  }
  manifest.files.push_back(write_rank_file(written, 0, manifest.type, owned));
  commit_save(written, manifest, {});
  Checkpoint checkpoint(written);
  EXPECT_THAT(message_of<base::InputError>(
                  [&] { export_checkpoint(checkpoint, directory / "a", {}, Contents::kTraining); }),
              testing::HasSubstr("take the checkpoint itself along"));
  EXPECT_FALSE(std::filesystem::exists(directory / "a"));
}

}  // namespace
}  // namespace sluice::checkpoint
