#include "checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/hash.h"
#include "checkpoint/companions.h"
#include "model/config_json.h"
#include "model/hugging_face.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::Interval;
using base::Json;
using base::text;

constexpr const char* kSchema = "sluice.checkpoint/3";
constexpr const char* kUnsharedSchema = "sluice.checkpoint/2";
constexpr const char* kUnhashedSchema = "sluice.checkpoint/1";

Json record_to_json(const FileRecord& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"checksum", base::hash_text(file.checksum)}};
}

Json file_to_json(const FileRecord& file) {
  Json json = record_to_json(file);
  if (file.header) json["header"] = base::hash_text(*file.header);
  json["intervals"] = Json::array();
  for (const Interval& interval : file.intervals) {
    json["intervals"].push_back({interval.begin, interval.end});
  }
  return json;
}

FileRecord record_from_json(const Json& json, const std::string& name) {
  return {.name = base::require<std::string>(json, "name", name),
          .bytes = base::require<int64_t>(json, "bytes", name),
          .checksum = base::parse_hash(base::require<std::string>(json, "checksum", name))};
}

FileRecord companion_from_json(const Json& json, const std::string& name) {
  FileRecord file = record_from_json(json, name);
  if (is_companion(file.name)) return file;
  throw InputError(
      text(name, ": '", file.name, "' is no file that goes with a model: remove it from the list"));
}

// Parses a record with intervals.
FileRecord file_from_json(const Json& json, const std::string& name) {
  FileRecord file = record_from_json(json, name);
  if (json.contains("header")) {
    file.header = base::parse_hash(base::require<std::string>(json, "header", name));
  }
  for (const Json& interval : base::require<Json>(json, "intervals", name)) {
    if (!interval.is_array() || interval.size() != 2 || !base::holds_integer<int64_t>(interval[0]) ||
        !base::holds_integer<int64_t>(interval[1])) {
      throw InputError(text(name, ": file ", file.name, " has interval ", base::excerpt(interval),
                            ", expected [begin, end]"));
    }
    file.intervals.push_back({interval[0].get<int64_t>(), interval[1].get<int64_t>()});
    if (file.intervals.back().begin < 0 || file.intervals.back().size() < 0) {
      throw InputError(
          text(name, ": file ", file.name, " has interval ", interval.dump(), ", which no bucket has"));
    }
  }
  return file;
}

FileRecord rank_file_from_json(const Json& json, int rank, const std::string& name) {
  FileRecord file = file_from_json(json, name);
  if (file.name == rank_file_name(rank)) return file;
  throw InputError(text(name, ": the file of rank ", rank, " is called '", file.name, "', expected '",
                        rank_file_name(rank), "'"));
}

FileRecord shared_file_from_json(const Json& json, const std::string& name) {
  FileRecord file = file_from_json(json, name);
  if (file.header && file.name == shared_file_name(*file.header)) return file;
  throw InputError(text(name, ": the shared file '", file.name, "' is not called by its header's checksum"));
}

// Hash of the content; a "hash" in `json` is left out.
uint64_t hash_of(Json json) {
  json.erase("hash");
  return base::hash_bytes(json.dump());
}

// Whether `json` has the hash of its own content.
bool has_own_hash(const Json& json) {
  return json.is_object() && json.contains("hash") && json["hash"] == Json(base::hash_text(hash_of(json)));
}

// Whether a program with a later format wrote this content, undamaged.
bool is_newer(const Json& json) {
  constexpr std::string_view kAnySchema = "sluice.checkpoint/";
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string()) return false;
  const std::string& schema = json["schema"].get_ref<const std::string&>();
  return schema.starts_with(kAnySchema) && schema != kSchema && schema != kUnsharedSchema &&
         schema != kUnhashedSchema && has_own_hash(json);
}

// True if the content is as it was written, false if the format's first version cannot tell. InputError
// otherwise.
bool require_hash(const Json& json, const std::string& name) {
  const auto schema = base::require<std::string>(json, "schema", name);
  if (schema == kUnhashedSchema && !json.contains("hash")) return false;
  if (schema != kSchema && schema != kUnsharedSchema) {
    throw InputError(text(name, ": schema is '", schema, "', expected '", kSchema, "'"));
  }
  if (!has_own_hash(json)) {
    throw InputError(text(name, ": its content has hash ", base::hash_text(hash_of(json)), ", but it says ",
                          base::excerpt(json.value("hash", Json()))));
  }
  return true;
}

TensorType type_from_config_name(const std::string& dtype, const std::string& name) {
  for (const TensorType type : {TensorType::kFloat32, TensorType::kFloat64}) {
    if (dtype == config_name(type)) return type;
  }
  throw InputError(text(name, ": dtype is '", dtype, "', expected float32 or float64"));
}

// InputError unless the files together hold every element of every bucket exactly once.
void require_cover(const Manifest& manifest, const std::string& name) {
  const model::ParameterTable table = model::parameter_table(manifest.model);
  std::vector<FileRecord> files = manifest.files;
  files.insert(files.end(), manifest.shared.begin(), manifest.shared.end());
  for (const FileRecord& file : files) {
    if (file.intervals.size() != table.buckets.size()) {
      throw InputError(text(name, ": file ", file.name, " lists ", file.intervals.size(),
                            " intervals but the model has ", table.buckets.size(), " buckets"));
    }
  }
  for (const model::Bucket& bucket : table.buckets) {
    std::vector<Interval> parts;
    for (const FileRecord& file : files) {
      const Interval part = file.intervals[static_cast<size_t>(bucket.index)];
      if (!part.empty()) parts.push_back(part);
    }
    std::sort(parts.begin(), parts.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
    int64_t end = 0;
    for (const Interval& part : parts) {
      if (part.begin != end) break;
      end = part.end;
    }
    if (end != bucket.size || (!parts.empty() && parts.back().end != end)) {
      throw InputError(text(name, ": the files hold bucket ", bucket.index, " only up to element ", end,
                            " of ", bucket.size));
    }
  }
}

template <typename Read>
auto damaged_unless_valid(const Read& read) {
  try {
    return read();
  } catch (const InputError& error) {
    throw DamagedCheckpoint(error.what());
  }
}

}  // namespace

DamagedCheckpoint::DamagedCheckpoint(const std::string& fault)
    : InputError(text(fault, ": the checkpoint is damaged: restore the file, or remove the directory to ",
                      "resume from the step before")) {}

std::optional<int64_t> step_of_directory(const std::string& directory) {
  constexpr std::string_view kPrefix = "step-";
  std::string name = directory;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.erase(0, kPrefix.size());
  if (name.ends_with(kPreviousSuffix)) name.resize(name.size() - kPreviousSuffix.size());
  const std::optional<int64_t> step = base::parse_integer(name);
  return step && *step >= 0 && name == std::to_string(*step) ? step : std::nullopt;
}

std::string rank_file_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%04d.safetensors", rank);
  return name;
}

std::string shared_file_name(uint64_t header) { return base::hash_text(header) + ".safetensors"; }

std::optional<double> measure_at_step(const Manifest& manifest) {
  const Json& evaluation = manifest.evaluation;
  if (!evaluation.is_object() || evaluation.value("step", Json()) != Json(manifest.step)) return std::nullopt;
  const auto measure = evaluation.find("measure");
  if (measure == evaluation.end() || !measure->is_number()) return std::nullopt;
  return measure->get<double>();
}

Json to_json(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) files.push_back(file_to_json(file));
  Json companions = Json::array();
  for (const FileRecord& file : manifest.companions) companions.push_back(record_to_json(file));
  Json json = {{"schema", manifest.shared.empty() ? kUnsharedSchema : kSchema},
               {"step", manifest.step},
               {"world_size", manifest.world_size},
               {"dtype", config_name(manifest.type)},
               {"model", model::config_json(manifest.model)},
               {"tuning", model::tuning_to_json(manifest.model)},
               {"files", files},
               {"companions", companions},
               {"sampler", manifest.sampler},
               {"rollout", manifest.rollout},
               {"corpora", manifest.corpora},
               {"calibration", manifest.calibration},
               {"config", manifest.config}};
  if (!manifest.evaluation.is_null()) json["evaluation"] = manifest.evaluation;
  if (!manifest.shared.empty()) {
    json["shared"] = Json::array();
    for (const FileRecord& file : manifest.shared) json["shared"].push_back(file_to_json(file));
  }
  json["hash"] = base::hash_text(hash_of(json));
  return json;
}

Manifest manifest_from_json(const Json& json, const std::string& name) {
  Manifest manifest{.hashed = require_hash(json, name)};
  manifest.step = base::require<int64_t>(json, "step", name);
  manifest.world_size = base::require<int>(json, "world_size", name);
  manifest.type = type_from_config_name(base::require<std::string>(json, "dtype", name), name);
  manifest.model = model::model_from_hugging_face(base::require<Json>(json, "model", name), name);
  manifest.model =
      model::with_tuning(manifest.model, base::get_or<Json>(json, "tuning", nullptr, name), name);
  const auto files = base::require<Json>(json, "files", name);
  if (manifest.step < 0 || !files.is_array() || manifest.world_size != static_cast<int64_t>(files.size())) {
    throw InputError(text(name, ": step ", manifest.step, " of ", manifest.world_size, " ranks has ",
                          files.size(), " files"));
  }
  for (const Json& file : files) {
    manifest.files.push_back(rank_file_from_json(file, static_cast<int>(manifest.files.size()), name));
  }
  for (const Json& file : base::get_or<Json>(json, "shared", Json::array(), name)) {
    manifest.shared.push_back(shared_file_from_json(file, name));
  }
  for (const Json& file : base::get_or<Json>(json, "companions", Json::array(), name)) {
    manifest.companions.push_back(companion_from_json(file, name));
  }
  manifest.sampler = base::get_or<Json>(json, "sampler", nullptr, name);
  manifest.rollout = base::get_or<Json>(json, "rollout", nullptr, name);
  manifest.corpora = base::get_or<Json>(json, "corpora", nullptr, name);
  manifest.calibration = base::get_or<Json>(json, "calibration", nullptr, name);
  manifest.config = base::get_or<std::string>(json, "config", "", name);
  manifest.evaluation = base::get_or<Json>(json, "evaluation", nullptr, name);
  require_cover(manifest, name);
  return manifest;
}

Manifest read_manifest(const storage::Location& directory) {
  const storage::Location file = directory / "manifest.json";
  const std::string name = file.string();
  if (!file.is_file()) {
    throw InputError(text(directory.string(), " holds no complete checkpoint (no manifest.json): name ",
                          "another step's directory, or resume = \"auto\" takes the newest complete one"));
  }
  const std::string bytes = file.read();
  const Json json = damaged_unless_valid([&] { return base::parse_json(bytes, name); });
  if (is_newer(json)) {
    throw InputError(text(name, ": schema is ", base::excerpt(json["schema"]), ", expected '", kSchema,
                          "': a newer program wrote it; read it with that one"));
  }
  return damaged_unless_valid([&] {
    Manifest manifest = manifest_from_json(json, name);
    const std::optional<int64_t> step = step_of_directory(directory.filename());
    if (step.value_or(manifest.step) == manifest.step) return manifest;
    throw InputError(
        text(name, " is of step ", manifest.step, ": give its directory that step's name again"));
  });
}

}  // namespace sluice::checkpoint
