#include "checkpoint/conversion.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "checkpoint/carried.h"
#include "checkpoint/merge.h"
#include "checkpoint/optimizer_folder.h"
#include "checkpoint/save.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

using base::Interval;
using base::text;

constexpr int64_t kChunk = int64_t{1} << 20;

// The values that an import writes: weights with zero Adam states, or the folder's optimizer state.
class Imported {
 public:
  Imported(const HuggingFaceModel& model, Contents contents) : model_(model) {
    if (contents == Contents::kTraining && has_optimizer(model.folder())) optimizer_.emplace(model);
  }

  // Everything but the file records.
  Manifest manifest() const {
    return optimizer_ ? optimizer_->run() : Manifest{.step = 0, .model = model_.model()};
  }

  void read(int bucket, Interval interval, State state, float* values) const {
    if (optimizer_) return optimizer_->read(bucket, interval, state, values);
    if (state == State::kMaster) return model_.read(bucket, interval, values);
    std::fill_n(values, interval.size(), 0.0F);
  }

 private:
  const HuggingFaceModel& model_;
  std::optional<OptimizerFolder> optimizer_;
};

void write_imported(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                    const model::ParameterTable& table, const Imported& imported) {
  SafetensorsWriter writer(path, tensors);
  std::vector<float> values;
  for (const model::Bucket& bucket : table.buckets) {
    for (const State state : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
      for (int64_t begin = 0; begin < bucket.size; begin += kChunk) {
        const Interval chunk{begin, std::min(begin + kChunk, bucket.size)};
        values.resize(static_cast<size_t>(chunk.size()));
        imported.read(bucket.index, chunk, state, values.data());
        writer.write(values.data(), chunk.size() * static_cast<int64_t>(sizeof(float)));
      }
    }
  }
  writer.finish();
}

}  // namespace

ParameterSource float_masters(Checkpoint& checkpoint) {
  return [&checkpoint](int index, Interval interval, float* values) {
    const model::Bucket& bucket = checkpoint.plain_table().buckets[static_cast<size_t>(index)];
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
                       const ExportOptions& options, Contents contents) {
  ExportOptions with_companions = options;
  if (with_companions.companions.empty()) with_companions.companions = checkpoint.companions();
  with_companions.record = folder_record(with_companions.companions);
  if (contents == Contents::kTraining) {
    ExportOptions states = options;
    states.record = with_companions.record;
    with_companions.add = [&checkpoint, states](const std::filesystem::path& part) {
      write_optimizer(part, checkpoint, states);
    };
  }
  const model::ParameterTable& tuned = checkpoint.plain_table();
  const model::ParameterTable plain = model::parameter_table(model::as_exported(tuned.model));
  export_hugging_face(folder, plain, merged(plain, tuned, float_masters(checkpoint)), with_companions);
}

void export_adapters(Checkpoint& checkpoint, const std::filesystem::path& folder, const std::string& base,
                     const ExportOptions& options) {
  ExportOptions named = options;
  named.record = folder_record(checkpoint.companions());
  export_adapters(folder, checkpoint.plain_table(), float_masters(checkpoint), base, named);
}

std::filesystem::path import_checkpoint(const HuggingFaceModel& model, const std::filesystem::path& root,
                                        Contents contents) {
  const Imported imported(model, contents);
  Manifest manifest = imported.manifest();
  FileRecord& record = manifest.files.emplace_back(FileRecord{.name = rank_file_name(0)});
  std::vector<TensorInfo> tensors;
  for (const model::Bucket& bucket : model.table().buckets) {
    record.intervals.push_back({0, bucket.size});
    for (const char* state : {"master", "exp_avg", "exp_avg_sq"}) {
      tensors.push_back({.name = text("bucket.", bucket.index, ".", state), .shape = {bucket.size}});
    }
  }
  const std::filesystem::path directory = prepare_save(root, manifest.step).path();
  try {
    write_imported(directory / record.name, tensors, model.table(), imported);
    const SafetensorsFile written(directory / record.name);
    record.bytes = written.size_bytes();
    record.checksum = written.checksum();
    manifest.companions = write_companions(directory, model_companions(model.folder()));
    commit_save(directory, manifest, {.count = 1 << 30});
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
    throw;
  }
  return directory;
}

}  // namespace sluice::checkpoint
