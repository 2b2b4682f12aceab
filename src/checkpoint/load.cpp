#include "checkpoint/load.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::Interval;
using base::text;

const char* name_of(State state) {
  switch (state) {
    case State::kMaster: return "master";
    case State::kExpAvg: return "exp_avg";
    case State::kExpAvgSq: return "exp_avg_sq";
  }
  return "";
}

// DamagedCheckpoint unless there is a file. RunError when that cannot be found out.
void require_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::regular) return;
  if (status.type() == std::filesystem::file_type::none) {
    throw base::RunError(text("cannot look for ", path.string(), ": ", error.message()));
  }
  throw DamagedCheckpoint(
      text(path.string(), std::filesystem::exists(status) ? " is no file" : " is missing"));
}

void require_as_recorded(const std::filesystem::path& path, const FileRecord& record) {
  require_file(path);
  const base::MappedFile mapped(path);
  if (static_cast<int64_t>(mapped.size()) != record.bytes) {
    throw DamagedCheckpoint(
        text(path.string(), " has ", mapped.size(), " bytes, the manifest says ", record.bytes));
  }
  const uint64_t found = base::hash_bytes(mapped.data(), mapped.size());
  if (found != record.checksum) {
    throw DamagedCheckpoint(text(path.string(), " has checksum ", base::hash_text(found),
                                 ", the manifest says ", base::hash_text(record.checksum)));
  }
}

// The first value in which two shapes differ, as "hidden 64, but the run has 128"; "" when equal.
std::string difference(const model::Shape& saved, const model::Shape& run) {
  const struct {
    const char* name;
    int64_t saved;
    int64_t run;
  } values[] = {{"layers", saved.layers, run.layers},
                {"hidden", saved.hidden, run.hidden},
                {"heads", saved.heads, run.heads},
                {"kv_heads", saved.kv_heads, run.kv_heads},
                {"head_dim", saved.head_dim, run.head_dim},
                {"ffn_hidden", saved.ffn_hidden, run.ffn_hidden},
                {"vocab", saved.vocab, run.vocab},
                {"tie_embeddings", saved.tie_embeddings, run.tie_embeddings}};
  for (const auto& [name, theirs, ours] : values) {
    if (theirs != ours) return text(name, " ", theirs, " but the run has ", ours);
  }
  // Who else writes such a model does not matter.
  model::Shape like = saved;
  like.family = run.family;
  return like == run ? "" : "another norm, rope, bias or factor than the run";
}

}  // namespace

Checkpoint::Checkpoint(std::filesystem::path directory)
    : directory_(std::move(directory)),
      manifest_(read_manifest(directory_)),
      files_(manifest_.files.size()) {}

void Checkpoint::require_model(const model::Shape& shape, TensorType type) const {
  const std::string fault = difference(manifest_.shape, shape);
  if (!fault.empty()) {
    throw InputError(text(directory_.string(), " has ", fault, ": resume with the [model] it was made with"));
  }
  if (manifest_.type != type) {
    throw InputError(text(directory_.string(), " holds ", config_name(manifest_.type), " but the run keeps ",
                          config_name(type), " masters: set train.dtype to match"));
  }
}

template <typename Element>
void Checkpoint::read(int bucket, Interval interval, State state, Element* values) {
  constexpr TensorType kType = std::is_same_v<Element, double> ? TensorType::kFloat64 : TensorType::kFloat32;
  if (manifest_.type != kType) {
    throw InputError(text(directory_.string(), " holds ", config_name(manifest_.type), ", not ",
                          config_name(kType), ": set train.dtype to match"));
  }
  for (size_t index = 0; index < files_.size(); ++index) {
    const Interval held = manifest_.files[index].intervals[static_cast<size_t>(bucket)];
    const Interval common = base::intersect(held, interval);
    if (common.empty()) continue;
    const SafetensorsFile& from = file(index);
    const TensorInfo& tensor = *from.find(text("bucket.", bucket, ".", name_of(state)));
    std::memcpy(values + (common.begin - interval.begin),
                from.data(tensor) + (common.begin - held.begin) * static_cast<int64_t>(sizeof(Element)),
                static_cast<size_t>(common.size()) * sizeof(Element));
  }
  if (state == State::kMaster)
    require_finite(bucket, std::span<const Element>(values, static_cast<size_t>(interval.size())));
}

template void Checkpoint::read(int, Interval, State, float*);
template void Checkpoint::read(int, Interval, State, double*);

template <typename Element>
void Checkpoint::require_finite(int bucket, std::span<const Element> values) const {
  const auto found =
      std::find_if_not(values.begin(), values.end(), [](Element v) { return std::isfinite(v); });
  if (found == values.end()) return;
  throw InputError(text(directory_.string(), ": bucket ", bucket, " of the parameters holds ", *found,
                        ": its training had diverged; go back to an earlier step"));
}

void Checkpoint::verify(std::span<const Interval> wanted) {
  SLUICE_ASSERT(wanted.size() == buckets(), text(wanted.size(), " intervals of ", buckets(), " buckets"));
  for (size_t index = 0; index < files_.size(); ++index) {
    for (size_t bucket = 0; bucket < wanted.size(); ++bucket) {
      const bool holds = !base::intersect(manifest_.files[index].intervals[bucket], wanted[bucket]).empty();
      if (holds) file(index);
    }
  }
}

void Checkpoint::verify() {
  for (size_t index = 0; index < files_.size(); ++index) file(index);
  companions();
}

std::vector<Companion> Checkpoint::companions() const {
  std::vector<Companion> companions;
  for (const FileRecord& record : manifest_.companions) {
    const std::filesystem::path path = directory_ / kCompanionDirectory / record.name;
    require_as_recorded(path, record);
    companions.push_back({record.name, base::read_file(path)});
  }
  return companions;
}

const SafetensorsFile& Checkpoint::file(size_t index) {
  if (files_[index] == nullptr) files_[index] = open(manifest_.files[index]);
  return *files_[index];
}

std::unique_ptr<SafetensorsFile> Checkpoint::open(const FileRecord& record) const {
  const std::filesystem::path path = directory_ / record.name;
  require_as_recorded(path, record);
  try {
    auto file = std::make_unique<SafetensorsFile>(path);
    require_tensors(*file, record);
    return file;
  } catch (const InputError& error) {
    throw DamagedCheckpoint(error.what());
  }
}

// InputError unless the file holds what its record promises.
void Checkpoint::require_tensors(const SafetensorsFile& file, const FileRecord& record) const {
  for (size_t bucket = 0; bucket < record.intervals.size(); ++bucket) {
    const int64_t elements = record.intervals[bucket].size();
    if (elements == 0) continue;
    for (const State state : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
      file.require(text("bucket.", bucket, ".", name_of(state)), manifest_.type, {elements});
    }
  }
}

}  // namespace sluice::checkpoint
