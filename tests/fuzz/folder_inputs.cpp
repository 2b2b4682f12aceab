// Inputs that are folders of files which refer to one another: models, checkpoints, data sets, runs that go
// on.

#include <fstream>

#include "base/file.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "checkpoint/conversion.h"
#include "checkpoint/optimizer_folder.h"
#include "corpus/inputs.h"
#include "corpus/load_tokenizer.h"
#include "corpus/tokenizer.h"
#include "corpus/unfinished.h"
#include "inputs.h"
#include "model/outline.h"
#include "program.h"
#include "report/metrics_file.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;
using base::Json;
using base::text;
using Reader = std::function<void(const fs::path&)>;

model::Outline small_shape() {
  return {.layers = 2, .hidden = 12, .heads = 4, .kv_heads = 2, .head_dim = 4, .ffn_hidden = 20, .vocab = 33};
}

void read_model(const fs::path& folder) {
  const checkpoint::HuggingFaceModel model(folder);
  std::vector<float> values(8);
  model.read(0, {0, 8}, values.data());
  if (!checkpoint::has_optimizer(folder)) return;
  const checkpoint::OptimizerFolder optimizer(model);
  for (const auto state :
       {checkpoint::State::kMaster, checkpoint::State::kExpAvg, checkpoint::State::kExpAvgSq}) {
    optimizer.read(0, {0, 8}, state, values.data());
  }
}

void read_checkpoint(const fs::path& directory) {
  checkpoint::Checkpoint opened(directory);
  opened.require_model(small_shape(), checkpoint::TensorType::kFloat32);
  std::vector<float> values(8);
  opened.read(0, {0, 8}, checkpoint::State::kMaster, values.data());
  opened.verify();
}

// A checkpoint, and the model of it in shards with the optimiser's state.
std::vector<Input> models(const fs::path& scratch) {
  const auto table = model::parameter_table(small_shape());
  const auto values = [](int, base::Interval interval, float* out) {
    for (int64_t e = interval.begin; e < interval.end; ++e) *out++ = static_cast<float>(e % 7) / 8;
  };
  checkpoint::export_hugging_face(scratch / "weights", table, values, {.companions = {}, .add = {}});
  const fs::path saved =
      checkpoint::import_checkpoint(checkpoint::HuggingFaceModel(scratch / "weights"), scratch / "imported");
  checkpoint::Checkpoint opened(saved);
  const fs::path model = scratch / "model";
  checkpoint::export_checkpoint(opened, model, {.max_shard_bytes = 4096, .companions = {}, .add = {}},
                                checkpoint::Contents::kTraining);
  std::vector<Input> inputs;
  const auto all_of = [&](const fs::path& folder, const std::string& name, const Reader& read) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const auto read_folder = [=](const fs::path&) { read(folder); };
      inputs.push_back(
          {text(name, "'s ", entry.path().filename().string()), damaged_file(entry.path(), read_folder)});
    }
  };
  all_of(model, "model", read_model);
  all_of(saved, "checkpoint", read_checkpoint);
  return inputs;
}

// A data set as save_to_disk leaves it, of which the lists of files are read.
std::vector<Input> data_sets(const fs::path& scratch) {
  const fs::path folder = scratch / "dataset";
  fs::create_directories(folder / "train");
  base::write_file_atomically(folder / "train" / "data-00000-of-00001.arrow", "ARROW1");
  base::write_json(folder / "dataset_dict.json", {{"splits", {"train", "test"}}});
  base::write_json(folder / "train" / "state.json",
                   {{"_data_files", {{{"filename", "data-00000-of-00001.arrow"}}}},
                    {"_indices_data_files", nullptr},
                    {"_split", "train"}});
  const auto read = [=](const fs::path&) { corpus::find_inputs({folder}, {}); };
  return {{"dataset_dict.json", damaged_file(folder / "dataset_dict.json", read)},
          {"state.json of a data set", damaged_file(folder / "train" / "state.json", read)}};
}

// What a killed process has left for the next.
std::vector<Input> left_behind(const fs::path& scratch) {
  const fs::path prefix = scratch / "growing" / "corpus";
  {
    corpus::Unfinished unfinished(prefix, "of these files");
    unfinished.save({{"tokens", 17}, {"documents", 3}, {"counts", {1, 2, 3}}});
    unfinished.keep();
  }
  const auto go_on = [=](const fs::path&) {
    corpus::Unfinished unfinished(prefix, "of these files");
    const Json state = unfinished.state();
    require(state.is_null() || state.at("tokens") == 17, "a damaged state is gone on with");
    unfinished.save({{"tokens", 17}});
    unfinished.keep();
  };
  const fs::path run = scratch / "earlier";
  fs::create_directories(run);
  const fs::path metrics = run / "metrics.jsonl";
  std::string lines;
  for (int step = 0; step < 9; ++step) lines += text("{\"step\":", step, ",\"loss\":7.5,\"time_ms\":3}\n");
  base::write_file_atomically(metrics, lines + "{\"step\":8,\"validation_loss\":7.4}\n");
  const auto resume = [=](const fs::path&) {
    report::MetricsWriter writer({.directory = run, .tensorboard = false, .first_step = 5});
    require(writer.missing_steps() <= 5, "more steps are missing than there were");
  };
  return {{"state of an unfinished corpus", damaged_file(prefix.string() + ".unfinished/state.json", go_on)},
          {"metrics of an earlier part", damaged_file(metrics, resume)}};
}

// Beside a tokenizer.model, which file_inputs() makes.
std::vector<Input> tokenizer_configs(const fs::path& scratch) {
  const fs::path path = scratch / "corpus" / "tokenizer_config.json";
  base::write_json(path, {{"add_bos_token", true},
                          {"bos_token", {{"content", "<0x0A>"}, {"special", true}}},
                          {"eos_token", "<0x09>"}});
  const auto read = [](const fs::path& config) { corpus::load_tokenizer(config.parent_path()); };
  return {{"tokenizer_config.json", damaged_file(path, read)}};
}

}  // namespace

std::vector<Input> folder_inputs(const fs::path& scratch) {
  std::vector<Input> inputs;
  for (auto& more : {models(scratch), data_sets(scratch), left_behind(scratch), tokenizer_configs(scratch)}) {
    inputs.insert(inputs.end(), more.begin(), more.end());
  }
  return inputs;
}

}  // namespace sluice::fuzz
