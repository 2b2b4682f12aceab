#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/part.h"
#include "base/text.h"
#include "checkpoint/hugging_face.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Interval;
using base::text;

// One tensor of the files and where its values stand in the flat order.
struct Item {
  TensorInfo info;
  int bucket = 0;
  Interval interval;
  model::HuggingFaceTensor tensor;
};

std::vector<Item> items_of(const model::ParameterTable& table, const ExportOptions& options) {
  std::vector<Item> items;
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      for (const model::HuggingFaceTensor& tensor : model::hugging_face_tensors(bucket, parameter)) {
        const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
        Item item{.bucket = bucket.index,
                  .interval = {begin, begin + tensor.rows * parameter.columns},
                  .tensor = tensor};
        item.info = {.name = options.prefix + tensor.name, .type = options.type, .shape = tensor.shape};
        items.push_back(std::move(item));
      }
    }
  }
  return items;
}

// Runs of tensors of at most `max_bytes` a file.
std::vector<std::vector<Item>> cut_into_files(std::vector<Item> items, int64_t max_bytes) {
  std::vector<std::vector<Item>> files;
  int64_t bytes = 0;
  for (Item& item : items) {
    const int64_t more = item.info.elements() * size_of(item.info.type);
    if (files.empty() || bytes + more > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().push_back(std::move(item));
  }
  return files;
}

void write_values(SafetensorsWriter& writer, TensorType type, const float* values, int64_t elements) {
  if (type == TensorType::kFloat32) {
    writer.write(values, elements * static_cast<int64_t>(sizeof(float)));
    return;
  }
  std::vector<uint16_t> narrow(static_cast<size_t>(elements));
  std::transform(values, values + elements, narrow.begin(), to_bfloat16);
  writer.write(narrow.data(), elements * static_cast<int64_t>(sizeof(uint16_t)));
}

void write_straight(SafetensorsWriter& writer, const Item& item, const ParameterSource& source) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  std::vector<float> values;
  for (int64_t begin = item.interval.begin; begin < item.interval.end; begin += kChunk) {
    const Interval chunk{begin, std::min(begin + kChunk, item.interval.end)};
    values.resize(static_cast<size_t>(chunk.size()));
    source(item.bucket, chunk, values.data());
    write_values(writer, item.info.type, values.data(), chunk.size());
  }
}

// Holds the whole tensor in the order of the file.
void write_reordered(SafetensorsWriter& writer, const Item& item, const ParameterSource& source) {
  constexpr int64_t kTile = 64;
  const model::HuggingFaceTensor& tensor = item.tensor;
  std::vector<float> ordered(static_cast<size_t>(item.interval.size()));
  std::vector<float> stored(static_cast<size_t>(kTile * tensor.columns));
  for (int64_t row0 = 0; row0 < tensor.rows; row0 += kTile) {
    const int64_t height = std::min(kTile, tensor.rows - row0);
    const int64_t begin = item.interval.begin + row0 * tensor.columns;
    source(item.bucket, {begin, begin + height * tensor.columns}, stored.data());
    for (int64_t column = 0; column < tensor.columns; ++column) {
      for (int64_t i = 0; i < height; ++i) {
        const int64_t place = tensor.order.first_of(row0 + i) + column * tensor.order.column_stride;
        ordered[static_cast<size_t>(place)] = stored[static_cast<size_t>(i * tensor.columns + column)];
      }
    }
  }
  constexpr int64_t kChunk = int64_t{1} << 20;
  for (int64_t begin = 0; begin < item.interval.size(); begin += kChunk)
    write_values(writer, item.info.type, ordered.data() + begin,
                 std::min(kChunk, item.interval.size() - begin));
}

void write_file(const fs::path& path, const std::vector<Item>& items, const ParameterSource& source) {
  std::vector<TensorInfo> tensors;
  for (const Item& item : items) tensors.push_back(item.info);
  SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  for (const Item& item : items) {
    if (item.tensor.straight()) {
      write_straight(writer, item, source);
    } else {
      write_reordered(writer, item, source);
    }
  }
  writer.finish();
}

std::string shard_name(const std::string& stem, size_t index, size_t count) {
  if (count == 1) return stem + ".safetensors";
  char number[64];
  std::snprintf(number, sizeof number, "-%05zu-of-%05zu.safetensors", index + 1, count);
  return stem + number;
}

// A folder under another name that becomes `path` at commit(), or vanishes.
class AtomicFolder {
 public:
  explicit AtomicFolder(const fs::path& path)
      : path_(path.has_filename() ? path : path.parent_path()), part_(base::part_of(path_)) {
    std::error_code ignored;
    if (fs::exists(path_, ignored) && !(fs::is_directory(path_, ignored) && fs::is_empty(path_, ignored))) {
      throw base::InputError(text(path_.string(), " exists already: name a new or empty folder"));
    }
    base::remove_abandoned_parts(path_);
    do {
      if (descriptor_ >= 0) ::close(descriptor_);
      base::make_directories(part_);
      descriptor_ = ::open(part_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (descriptor_ >= 0 && !base::claim_part(descriptor_));
  }
  ~AtomicFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(part_, ignored);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const fs::path& part() const { return part_; }

  void commit() {
    std::error_code error;
    fs::rename(part_, path_, error);
    if (error) throw base::RunError(text("cannot make ", path_.string(), ": ", error.message()));
    committed_ = true;
    const fs::path parent = path_.parent_path();
    base::sync_directory(parent.empty() ? "." : parent);
  }

 private:
  fs::path path_;
  fs::path part_;
  int descriptor_ = -1;  // keeps the lock
  bool committed_ = false;
};

}  // namespace

void write_tensors(const fs::path& folder, const std::string& stem, const model::ParameterTable& table,
                   const ParameterSource& source, const ExportOptions& options) {
  const auto files = cut_into_files(items_of(table, options), options.max_shard_bytes);
  base::Json weight_map = base::Json::object();
  int64_t total_bytes = 0;
  for (size_t index = 0; index < files.size(); ++index) {
    const std::string name = shard_name(stem, index, files.size());
    write_file(folder / name, files[index], source);
    for (const Item& item : files[index]) {
      weight_map[item.info.name] = name;
      total_bytes += item.info.elements() * size_of(item.info.type);
    }
  }
  if (files.size() == 1) return;
  base::write_json(folder / (stem + ".safetensors.index.json"),
                   {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}});
}

void export_hugging_face(const fs::path& folder, const model::ParameterTable& table,
                         const ParameterSource& source, const ExportOptions& options) {
  SLUICE_ASSERT(options.type == TensorType::kFloat32 || options.type == TensorType::kBFloat16,
                "exports are float32 or bfloat16");
  AtomicFolder output(folder);
  write_tensors(output.part(), kWeightsStem, table, source, options);
  for (const Companion& companion : options.companions) {
    base::write_file_atomically(output.part() / companion.name, companion.bytes);
  }
  base::write_json(output.part() / "config.json", exported_config(options.companions, table.shape,
                                                                  {.dtype = config_name(options.type),
                                                                   .least_positions = options.least_positions,
                                                                   .positions = options.positions}));
  if (options.add) options.add(output.part());
  output.commit();
}

void export_adapters(const fs::path& folder, const model::ParameterTable& table,
                     const ParameterSource& source, const std::string& base, const ExportOptions& options) {
  const model::Lora& lora = table.shape.lora;
  if (lora.rank == 0) {
    throw base::InputError(text("the model has no adapters to write to ", folder.string(),
                                ": export it whole, or train it with lora.rank above 0"));
  }
  model::ParameterTable adapters = table;
  for (model::Bucket& bucket : adapters.buckets) {
    std::erase_if(bucket.parameters,
                  [](const model::Parameter& parameter) { return parameter.factor == model::Factor::kNone; });
  }
  AtomicFolder output(folder);
  write_tensors(output.part(), "adapter_model", adapters, source,
                {.type = options.type,
                 .max_shard_bytes = std::numeric_limits<int64_t>::max(),
                 .prefix = "base_model.model."});
  base::write_json(output.part() / "adapter_config.json", {{"peft_type", "LORA"},
                                                           {"task_type", "CAUSAL_LM"},
                                                           {"base_model_name_or_path", base},
                                                           {"r", lora.rank},
                                                           {"lora_alpha", lora.alpha},
                                                           {"target_modules", lora.targets},
                                                           {"lora_dropout", 0.0},
                                                           {"bias", "none"},
                                                           {"fan_in_fan_out", false},
                                                           {"init_lora_weights", true},
                                                           {"inference_mode", true}});
  output.commit();
}

}  // namespace sluice::checkpoint
