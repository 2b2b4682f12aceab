#include "checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>

#include "base/hash.h"
#include "model/hugging_face.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::Interval;
using base::Json;
using base::text;

constexpr const char* kSchema = "sluice.checkpoint/1";

Json file_to_json(const FileRecord& file) {
  Json intervals = Json::array();
  for (const Interval& interval : file.intervals) intervals.push_back({interval.begin, interval.end});
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"checksum", base::hash_text(file.checksum)},
          {"intervals", intervals}};
}

// Names come from outside: they must not lead out of the directory.
std::string plain_file_name(const Json& json, const std::string& name) {
  const auto file = base::require<std::string>(json, "name", name);
  if (file.empty() || file.find('/') != std::string::npos || file == "..") {
    throw InputError(text(name, ": '", file, "' is not the name of a file in the checkpoint"));
  }
  return file;
}

FileRecord file_from_json(const Json& json, const std::string& name) {
  FileRecord file{.name = plain_file_name(json, name), .bytes = base::require<int64_t>(json, "bytes", name)};
  file.checksum = base::parse_hash(base::require<std::string>(json, "checksum", name));
  for (const Json& interval : base::require<Json>(json, "intervals", name)) {
    if (!interval.is_array() || interval.size() != 2 || !base::holds_integer<int64_t>(interval[0]) ||
        !base::holds_integer<int64_t>(interval[1])) {
      throw InputError(text(name, ": file ", file.name, " has interval ", base::excerpt(interval),
                            ", expected [begin, end]"));
    }
    file.intervals.push_back({interval[0].get<int64_t>(), interval[1].get<int64_t>()});
  }
  return file;
}

TensorType type_from_config_name(const std::string& dtype, const std::string& name) {
  for (const TensorType type : {TensorType::kFloat32, TensorType::kFloat64}) {
    if (dtype == config_name(type)) return type;
  }
  throw InputError(text(name, ": dtype is '", dtype, "', expected float32 or float64"));
}

// InputError unless the files together hold every element of every bucket exactly once.
void require_cover(const Manifest& manifest, const std::string& name) {
  const model::ParameterTable table = model::parameter_table(manifest.shape);
  for (const FileRecord& file : manifest.files) {
    if (file.intervals.size() != table.buckets.size()) {
      throw InputError(text(name, ": file ", file.name, " lists ", file.intervals.size(),
                            " intervals but the model has ", table.buckets.size(), " buckets"));
    }
  }
  for (const model::Bucket& bucket : table.buckets) {
    std::vector<Interval> parts;
    for (const FileRecord& file : manifest.files) {
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

}  // namespace

std::string rank_file_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%04d.safetensors", rank);
  return name;
}

Json to_json(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileRecord& file : manifest.files) files.push_back(file_to_json(file));
  return {{"schema", kSchema},
          {"step", manifest.step},
          {"world_size", manifest.world_size},
          {"dtype", config_name(manifest.type)},
          {"model", model::shape_to_hugging_face(manifest.shape, config_name(manifest.type), 0)},
          {"files", files},
          {"sampler", manifest.sampler},
          {"calibration", manifest.calibration},
          {"config", manifest.config}};
}

Manifest manifest_from_json(const Json& json, const std::string& name) {
  base::require_schema(json, kSchema, name);
  Manifest manifest{.step = base::require<int64_t>(json, "step", name),
                    .world_size = base::require<int>(json, "world_size", name)};
  manifest.type = type_from_config_name(base::require<std::string>(json, "dtype", name), name);
  manifest.shape = model::shape_from_hugging_face(base::require<Json>(json, "model", name), name);
  for (const Json& file : base::require<Json>(json, "files", name)) {
    manifest.files.push_back(file_from_json(file, name));
  }
  manifest.sampler = base::get_or<Json>(json, "sampler", nullptr, name);
  manifest.calibration = base::get_or<Json>(json, "calibration", nullptr, name);
  manifest.config = base::get_or<std::string>(json, "config", "", name);
  require_cover(manifest, name);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "manifest.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw InputError(text(directory.string(), " holds no complete checkpoint (no manifest.json): name ",
                          "another step's directory, or resume = \"auto\" takes the newest complete one"));
  }
  try {
    return manifest_from_json(base::read_json(path), path.string());
  } catch (const InputError& error) {
    throw InputError(text(error.what(), ": the checkpoint is damaged: restore the file, or remove the ",
                          "directory to resume from the step before"));
  }
}

}  // namespace sluice::checkpoint
