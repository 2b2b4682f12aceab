#include "checkpoint/load.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
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

constexpr const char* kWayOut =
    ": the checkpoint is damaged: restore the file, or remove the directory to resume from the step before";

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
  return saved == run ? "" : "another norm_eps or rope than the run";
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
    const TensorInfo& tensor =
        from.require(text("bucket.", bucket, ".", name_of(state)), kType, {held.size()});
    std::memcpy(values + (common.begin - interval.begin),
                from.data(tensor) + (common.begin - held.begin) * static_cast<int64_t>(sizeof(Element)),
                static_cast<size_t>(common.size()) * sizeof(Element));
  }
}

template void Checkpoint::read(int, Interval, State, float*);
template void Checkpoint::read(int, Interval, State, double*);

void Checkpoint::verify() {
  for (size_t index = 0; index < files_.size(); ++index) file(index);
}

const SafetensorsFile& Checkpoint::file(size_t index) {
  if (files_[index] != nullptr) return *files_[index];
  const FileRecord& record = manifest_.files[index];
  const std::filesystem::path path = directory_ / record.name;
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw InputError(text(path.string(), " is missing", kWayOut));
  if (static_cast<int64_t>(bytes) != record.bytes) {
    throw InputError(
        text(path.string(), " has ", bytes, " bytes, the manifest says ", record.bytes, kWayOut));
  }
  const base::MappedFile mapped(path);
  const uint64_t found = base::hash_bytes(mapped.data(), mapped.size());
  if (found != record.checksum) {
    throw InputError(text(path.string(), " has checksum ", base::hash_text(found), ", the manifest says ",
                          base::hash_text(record.checksum), kWayOut));
  }
  files_[index] = std::make_unique<SafetensorsFile>(path);
  return *files_[index];
}

}  // namespace sluice::checkpoint
