#include "checkpoint/conversion.h"

#include <algorithm>

#include "base/text.h"
#include "checkpoint/save.h"

namespace sluice::checkpoint {
namespace {

using base::Interval;
using base::text;

constexpr int64_t kChunk = int64_t{1} << 20;

void write_master(SafetensorsWriter& writer, const HuggingFaceModel& model, const model::Bucket& bucket) {
  std::vector<float> values;
  for (int64_t begin = 0; begin < bucket.size; begin += kChunk) {
    const Interval chunk{begin, std::min(begin + kChunk, bucket.size)};
    values.resize(static_cast<size_t>(chunk.size()));
    model.read(bucket.index, chunk, values.data());
    writer.write(values.data(), chunk.size() * static_cast<int64_t>(sizeof(float)));
  }
}

void write_zeros(SafetensorsWriter& writer, int64_t elements) {
  const std::vector<float> zeros(static_cast<size_t>(std::min(elements, kChunk)));
  for (int64_t begin = 0; begin < elements; begin += kChunk) {
    writer.write(zeros.data(), std::min(kChunk, elements - begin) * static_cast<int64_t>(sizeof(float)));
  }
}

void write_imported(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                    const HuggingFaceModel& model) {
  SafetensorsWriter writer(path, tensors);
  for (const model::Bucket& bucket : model.table().buckets) {
    write_master(writer, model, bucket);
    write_zeros(writer, 2 * bucket.size);
  }
  writer.finish();
}

}  // namespace

ParameterSource float_masters(Checkpoint& checkpoint) {
  return [&checkpoint](int bucket, Interval interval, float* values) {
    if (checkpoint.manifest().type == TensorType::kFloat32) {
      checkpoint.read(bucket, interval, State::kMaster, values);
      return;
    }
    std::vector<double> wide(static_cast<size_t>(interval.size()));
    checkpoint.read(bucket, interval, State::kMaster, wide.data());
    std::transform(wide.begin(), wide.end(), values, [](double value) { return static_cast<float>(value); });
  };
}

void export_checkpoint(Checkpoint& checkpoint, const std::filesystem::path& folder,
                       const ExportOptions& options) {
  ExportOptions with_companions = options;
  with_companions.companions = checkpoint.companions();
  export_hugging_face(folder, model::parameter_table(checkpoint.manifest().shape), float_masters(checkpoint),
                      with_companions);
}

std::filesystem::path import_checkpoint(const HuggingFaceModel& model, const std::filesystem::path& root) {
  Manifest manifest{.step = 0, .world_size = 1, .shape = model.shape()};
  FileRecord& record = manifest.files.emplace_back(FileRecord{.name = rank_file_name(0)});
  std::vector<TensorInfo> tensors;
  for (const model::Bucket& bucket : model.table().buckets) {
    record.intervals.push_back({0, bucket.size});
    for (const char* state : {"master", "exp_avg", "exp_avg_sq"}) {
      tensors.push_back({.name = text("bucket.", bucket.index, ".", state), .shape = {bucket.size}});
    }
  }
  const std::filesystem::path directory = prepare_save(root, 0);
  try {
    write_imported(directory / record.name, tensors, model);
    const SafetensorsFile written(directory / record.name);
    record.bytes = written.size_bytes();
    record.checksum = written.checksum();
    manifest.companions = write_companions(directory, read_companions(model.folder()));
    commit_save(directory, manifest, {.count = 1 << 30});
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
    throw;
  }
  return directory;
}

}  // namespace sluice::checkpoint
