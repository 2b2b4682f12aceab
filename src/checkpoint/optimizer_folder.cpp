#include "checkpoint/optimizer_folder.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Interval;
using base::Json;
using base::text;

constexpr const char* kOptimizerSchema = "sluice.optimizer/1";
constexpr const char* kDirectory = "optimizer";
constexpr const char* kMasters = "master";
constexpr const char* kExpAvg = "exp_avg";
constexpr const char* kExpAvgSq = "exp_avg_sq";
constexpr const char* kImportAnew = ": export it again, or import with --weights-only";

fs::path state_file(const fs::path& folder) { return folder / kDirectory / "state.json"; }

bool has_tensors(const fs::path& folder, const char* stem) {
  std::error_code ignored;
  return fs::exists(folder / text(stem, ".safetensors"), ignored) ||
         fs::exists(folder / text(stem, ".safetensors.index.json"), ignored);
}

// Hashes of the safetensors files of the model and its optimizer state, by path in the folder.
Json hashes_of_files(const fs::path& folder) {
  std::set<fs::path> files;
  for (const fs::path& directory : {folder, folder / kDirectory}) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".safetensors") files.insert(entry.path());
    }
  }
  Json hashes = Json::object();
  for (const fs::path& file : files) {
    hashes[file.lexically_relative(folder).string()] = base::hash_text(SafetensorsFile(file).checksum());
  }
  return hashes;
}

ParameterSource moments(Checkpoint& checkpoint, State state) {
  return [&checkpoint, state](int bucket, Interval interval, float* values) {
    checkpoint.read(bucket, interval, state, values);
  };
}

// InputError unless the folder's files have the hashes in state.json.
void require_files(const fs::path& folder, const Json& hashes, const std::string& name) {
  for (const auto& [file, hash] : hashes.items()) {
    const fs::path relative(file);
    if (relative.is_absolute() || std::ranges::find(relative, "..") != relative.end() || !hash.is_string()) {
      throw InputError(text(name, ": key 'files' says ", base::excerpt(hash), " of '", file,
                            "', expected the hash of a file in the folder", kImportAnew));
    }
    std::error_code ignored;
    if (!fs::exists(folder / relative, ignored)) {
      throw InputError(text(name, ": ", file, " is missing", kImportAnew));
    }
    const std::string found = base::hash_text(SafetensorsFile(folder / relative).checksum());
    if (found == hash.get<std::string>()) continue;
    throw InputError(text(name, ": ", file, " has hash ", found, ", the optimiser state belongs to one with ",
                          hash.get<std::string>(), kImportAnew));
  }
}

Manifest read_run(const HuggingFaceModel& model) {
  const std::string name = state_file(model.folder()).string();
  const Json json = base::read_json(name);
  base::require_schema(json, kOptimizerSchema, name);
  Manifest run{.step = base::require<int64_t>(json, "step", name), .model = model.model()};
  if (run.step < 0) throw InputError(text(name, ": key 'step' is ", run.step, ": give the steps done"));
  run.sampler = base::get_or<Json>(json, "sampler", nullptr, name);
  run.corpora = base::get_or<Json>(json, "corpora", nullptr, name);
  run.calibration = base::get_or<Json>(json, "calibration", nullptr, name);
  run.config = base::get_or<std::string>(json, "config", "", name);
  if (!run.sampler.is_null()) {
    const auto at = base::require<int64_t>(run.sampler, "step", name);
    if (at != run.step) {
      throw InputError(
          text(name, ": the sampler stands at step ", at, ", the optimiser at ", run.step, kImportAnew));
    }
  }
  require_files(model.folder(), base::get_or<Json>(json, "files", Json::object(), name), name);
  return run;
}

TensorFolder open_moments(const HuggingFaceModel& model, const char* stem) {
  const fs::path folder = model.folder() / kDirectory;
  if (has_tensors(folder, stem)) return {folder, stem, model.table()};
  throw InputError(text(folder.string(), " has no ", stem, ".safetensors", kImportAnew));
}

}  // namespace

bool has_optimizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(state_file(folder), ignored);
}

void write_optimizer(const fs::path& folder, Checkpoint& checkpoint, const ExportOptions& options) {
  const Manifest& manifest = checkpoint.manifest();
  if (manifest.type != TensorType::kFloat32) {
    throw InputError(
        text(checkpoint.directory().string(), " holds ", config_name(manifest.type),
             " optimiser states, and a folder float32 ones: take the checkpoint itself along, which ",
             "any number of ranks resumes, or export the weights alone"));
  }
  if (model::is_tuned(manifest.model)) {
    throw InputError(text(checkpoint.directory().string(),
                          " has parameters that are frozen or adapted, or a trained MTP layer, and a folder "
                          "the state of a whole ",
                          "optimiser: take the checkpoint itself along, which any number of ranks resumes, ",
                          "or export the weights alone"));
  }
  const model::ParameterTable table = model::parameter_table(manifest.model);
  ExportOptions exact = options;
  exact.type = TensorType::kFloat32;
  const fs::path directory = folder / kDirectory;
  base::make_directories(directory);
  if (options.type != exact.type) {
    write_tensors(directory, kMasters, table, moments(checkpoint, State::kMaster), exact);
  }
  write_tensors(directory, kExpAvg, table, moments(checkpoint, State::kExpAvg), exact);
  write_tensors(directory, kExpAvgSq, table, moments(checkpoint, State::kExpAvgSq), exact);
  base::write_json(state_file(folder), {{"schema", kOptimizerSchema},
                                        {"step", manifest.step},
                                        {"sampler", manifest.sampler},
                                        {"corpora", manifest.corpora},
                                        {"calibration", manifest.calibration},
                                        {"config", manifest.config},
                                        {"files", hashes_of_files(folder)}});
}

OptimizerFolder::OptimizerFolder(const HuggingFaceModel& model)
    : model_(model),
      run_(read_run(model)),
      exp_avg_(open_moments(model, kExpAvg)),
      exp_avg_sq_(open_moments(model, kExpAvgSq)) {
  if (has_tensors(model.folder() / kDirectory, kMasters)) masters_.emplace(open_moments(model, kMasters));
}

void OptimizerFolder::read(int bucket, Interval interval, State state, float* values) const {
  switch (state) {
    case State::kMaster:
      return masters_ ? masters_->read(bucket, interval, values) : model_.read(bucket, interval, values);
    case State::kExpAvg: return exp_avg_.read(bucket, interval, values);
    case State::kExpAvgSq: break;
  }
  exp_avg_sq_.read(bucket, interval, values);
  const std::span<const float> squares(values, static_cast<size_t>(interval.size()));
  if (const auto found = std::ranges::find_if(squares, [](float v) { return v < 0; });
      found != squares.end()) {
    throw InputError(text(exp_avg_sq_.folder().string(), ": ", kExpAvgSq, " holds ", *found,
                          ", and means of squares are not negative", kImportAnew));
  }
}

}  // namespace sluice::checkpoint
