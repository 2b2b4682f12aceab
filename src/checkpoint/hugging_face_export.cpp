#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <set>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/part.h"
#include "base/text.h"
#include "checkpoint/carried.h"
#include "checkpoint/exported_config.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/mtp_copies.h"
#include "checkpoint/peft_names.h"
#include "model/lora_targets.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Interval;
using base::text;

// One tensor of the files: the position of its values in the flat order, or a carried tensor's bytes.
struct Item {
  TensorInfo info;
  int bucket = 0;
  Interval interval;
  model::HuggingFaceTensor tensor;
  const std::byte* carried = nullptr;
  // One of the tensors in place of a quantised matrix, whose values lie in `interval`.
  std::shared_ptr<QuantizedMatrix> quantized = nullptr;
  size_t of_quantized = 0;
};

std::vector<Item> items_of(const model::ParameterTable& table, const ExportOptions& options) {
  std::vector<Item> items;
  const auto add = [&](const model::Bucket& bucket, const model::Parameter& parameter,
                       const model::HuggingFaceTensor& tensor, const std::string& name) {
    const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
    Item item{.bucket = bucket.index,
              .interval = {begin, begin + tensor.rows * parameter.columns},
              .tensor = tensor};
    item.info = {.name = options.prefix + name,
                 .type = options.record.exported(name, options.type),
                 .shape = tensor.shape};
    if (options.quantization == Quantization::kNone || !is_linear(bucket, parameter)) {
      items.push_back(std::move(item));
      return;
    }
    item.quantized = std::make_shared<QuantizedMatrix>(options.quantization, item.info);
    for (const TensorInfo& info : item.quantized->tensors()) {
      item.info = info;
      items.push_back(item);
      ++item.of_quantized;
    }
  };
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      for (const model::HuggingFaceTensor& tensor : options.record.names.tensors(bucket, parameter))
        add(bucket, parameter, tensor, tensor.name);
    }
  }
  const auto add_copy = [&](const std::string& name, const std::string& original) {
    for (const model::Bucket* const bucket : {&table.embedding(), &table.head()}) {
      for (const model::Parameter& parameter : bucket->parameters) {
        const model::HuggingFaceTensor tensor = options.record.names.tensors(*bucket, parameter).front();
        if (tensor.name == original) add(*bucket, parameter, tensor, name);
      }
    }
  };
  const model::Bucket& embedding = table.embedding();
  if (options.record.tied_head && table.model.ties_head()) {
    add_copy(options.record.names.head + "weight",
             options.record.names.tensors(embedding, embedding.parameters.front()).front().name);
  }
  if (options.carried == nullptr || !table.model.has_mtp()) return items;
  for (const TensorInfo& tensor : options.carried->tensors()) {
    if (const auto original = original_of_mtp(tensor.name, table, options.record.names))
      add_copy(tensor.name, *original);
  }
  return items;
}

// Cuts tensors into runs of at most `max_bytes`, one for each file. Within a file wider elements come first,
// so that all are aligned.
std::vector<std::vector<Item>> cut_into_files(std::vector<Item> items, int64_t max_bytes) {
  std::vector<std::vector<Item>> files;
  int64_t bytes = 0;
  for (Item& item : items) {
    const int64_t more = item.info.bytes();
    if (files.empty() || bytes + more > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().push_back(std::move(item));
  }
  const auto width = [](const Item& item) { return element_bits(item.info.type_name()); };
  for (std::vector<Item>& file : files) std::ranges::stable_sort(file, std::greater(), width);
  return files;
}

void write_values(SafetensorsWriter& writer, const TensorInfo& info, const float* values, int64_t elements) {
  if (info.type == TensorType::kFloat32) {
    writer.write(values, elements * static_cast<int64_t>(sizeof(float)));
    return;
  }
  const bool half = info.type == TensorType::kFloat16;
  std::vector<uint16_t> narrow(static_cast<size_t>(elements));
  std::transform(values, values + elements, narrow.begin(), half ? to_float16 : to_bfloat16);
  for (int64_t i = 0; half && i < elements; ++i) {
    const bool lost = (narrow[static_cast<size_t>(i)] & 0x7FFFU) == 0x7C00U && std::isfinite(values[i]);
    if (!lost) continue;
    throw base::InputError(text("tensor '", info.name, "' holds ", values[i],
                                ", which float16 cannot hold: export as bfloat16 or float32"));
  }
  writer.write(narrow.data(), elements * static_cast<int64_t>(sizeof(uint16_t)));
}

void write_straight(SafetensorsWriter& writer, const Item& item, const ParameterSource& source) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  std::vector<float> values;
  for (int64_t begin = item.interval.begin; begin < item.interval.end; begin += kChunk) {
    const Interval chunk{begin, std::min(begin + kChunk, item.interval.end)};
    values.resize(static_cast<size_t>(chunk.size()));
    source(item.bucket, chunk, values.data());
    write_values(writer, item.info, values.data(), chunk.size());
  }
}

// The whole tensor, in the file's order.
std::vector<float> in_file_order(const Item& item, const ParameterSource& source) {
  constexpr int64_t kTile = 64;
  const model::HuggingFaceTensor& tensor = item.tensor;
  std::vector<float> ordered(static_cast<size_t>(item.interval.size()));
  if (tensor.straight()) {
    source(item.bucket, item.interval, ordered.data());
    return ordered;
  }
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
  return ordered;
}

// Holds the whole tensor in memory.
void write_reordered(SafetensorsWriter& writer, const Item& item, const ParameterSource& source) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  const std::vector<float> ordered = in_file_order(item, source);
  for (int64_t begin = 0; begin < item.interval.size(); begin += kChunk)
    write_values(writer, item.info, ordered.data() + begin, std::min(kChunk, item.interval.size() - begin));
}

// Values are read once for the maxima and once for the codes, of which a file may hold gigabytes.
void write_quantized(SafetensorsWriter& writer, const Item& item, const ParameterSource& source) {
  QuantizedMatrix& matrix = *item.quantized;
  std::vector<float> values;
  if (!matrix.measured() || matrix.needs_values(item.of_quantized)) values = in_file_order(item, source);
  if (!matrix.measured()) matrix.measure(values);
  const std::vector<std::byte> bytes = matrix.bytes(item.of_quantized, values);
  writer.write(bytes.data(), std::ssize(bytes));
}

void write_file(const fs::path& path, const std::vector<Item>& items, const ParameterSource& source) {
  std::vector<TensorInfo> tensors;
  for (const Item& item : items) tensors.push_back(item.info);
  SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  for (const Item& item : items) {
    if (item.carried != nullptr) {
      writer.write(item.carried, item.info.bytes());
    } else if (item.quantized != nullptr) {
      write_quantized(writer, item, source);
    } else if (item.tensor.straight()) {
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

// A folder under a temporary name that becomes `path` at commit(), or vanishes.
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
  std::vector<Item> items = items_of(table, options);
  if (options.carried != nullptr) {
    std::set<std::string> trained;
    for (const Item& item : items) trained.insert(item.info.name);
    for (const TensorInfo& tensor : options.carried->tensors()) {
      if (!trained.contains(tensor.name))
        items.push_back({.info = tensor, .carried = options.carried->data(tensor)});
    }
  }
  const auto files = cut_into_files(std::move(items), options.max_shard_bytes);
  base::Json::object_t weight_map;
  int64_t total_bytes = 0;
  for (size_t index = 0; index < files.size(); ++index) {
    const std::string name = shard_name(stem, index, files.size());
    write_file(folder / name, files[index], source);
    for (const Item& item : files[index]) {
      // Appended without a lookup: the map's own insertion compares the name with all earlier ones.
      weight_map.Container::emplace_back(item.info.name, name);
      total_bytes += item.info.bytes();
    }
  }
  if (files.size() == 1) return;
  base::write_json(
      folder / (stem + ".safetensors.index.json"),
      {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", base::Json(std::move(weight_map))}});
}

namespace {

void round_to(TensorType type, std::span<float> values) {
  if (type == TensorType::kFloat32) return;
  for (float& value : values) {
    const uint16_t bits = type == TensorType::kFloat16 ? to_float16(value) : to_bfloat16(value);
    to_floats(reinterpret_cast<const std::byte*>(&bits), type, 1, &value);
  }
}

// Elements `some` of a matrix, as readers of its quantised form get them; quantises the whole matrix.
void read_quantized(const Item& item, Quantization quantization, const ParameterSource& source, Interval some,
                    float* values) {
  QuantizedMatrix matrix(quantization, item.info);
  std::vector<float> all = in_file_order(item, source);
  matrix.measure(all);
  matrix.expand(all);
  const model::HuggingFaceTensor& tensor = item.tensor;
  for (int64_t at = some.begin; at < some.end; ++at) {
    const int64_t row = at / tensor.columns, column = at % tensor.columns;
    values[at - some.begin] =
        all[static_cast<size_t>(tensor.order.first_of(row) + column * tensor.order.column_stride)];
  }
}

}  // namespace

ParameterSource as_written(const model::ParameterTable& table, ParameterSource source,
                           const ExportOptions& options) {
  return [&table, source = std::move(source), type = options.type, record = options.record,
          quantization = options.quantization](int bucket, Interval interval, float* values) {
    source(bucket, interval, values);
    const model::Bucket& from = table.buckets[static_cast<size_t>(bucket)];
    for (const model::Parameter& parameter : from.parameters) {
      const Interval all{parameter.offset, parameter.offset + parameter.size()};
      if (base::intersect(all, interval).empty()) continue;
      for (const model::HuggingFaceTensor& tensor : record.names.tensors(from, parameter)) {
        const int64_t begin = parameter.offset + tensor.row_begin * parameter.columns;
        const Interval part = base::intersect({begin, begin + tensor.rows * parameter.columns}, interval);
        if (part.empty()) continue;
        float* const to = values + (part.begin - interval.begin);
        if (quantization != Quantization::kNone && is_linear(from, parameter)) {
          const Item item{.info = {.name = tensor.name, .type = type, .shape = tensor.shape},
                          .bucket = bucket,
                          .interval = {begin, begin + tensor.rows * parameter.columns},
                          .tensor = tensor};
          read_quantized(item, quantization, source, {part.begin - begin, part.end - begin}, to);
        } else {
          round_to(record.exported(tensor.name, type), {to, static_cast<size_t>(part.size())});
        }
      }
    }
  };
}

namespace {

constexpr const char* kModules = "modules.json";
constexpr const char* kSentenceConfig = "config_sentence_transformers.json";

// The files that tell sentence-transformers of an embedding model; other models have none of them.
std::set<std::string> sentence_files(const std::vector<Companion>& companions) {
  const auto modules = std::ranges::find(companions, kModules, &Companion::name);
  if (modules == companions.end()) return {};
  std::set<std::string> names{kModules, kSentenceConfig, "sentence_bert_config.json"};
  const base::Json all = base::parse_json(modules->bytes, kModules);
  for (const base::Json& module : all.is_array() ? all : base::Json::array()) {
    const auto place = base::get_or<std::string>(module, "path", "", kModules);
    if (!place.empty()) names.insert((fs::path(place) / "config.json").lexically_normal().string());
  }
  return names;
}

// Writes what goes with the weights, and returns the carried tensors, if there are any.
std::unique_ptr<SafetensorsFile> write_companions(const fs::path& folder,
                                                  const std::vector<Companion>& companions,
                                                  const model::HeadStyle& head) {
  std::unique_ptr<SafetensorsFile> carried;
  const std::set<std::string> others =
      head.kind == model::HeadKind::kRows ? std::set<std::string>() : sentence_files(companions);
  for (const Companion& companion : companions) {
    if (companion.name == kFolderRecord || companion.name == "config.json") continue;
    if (others.contains(companion.name)) continue;
    const bool is_carried = companion.name == kCarriedTensors;
    const bool in_place = is_carried && !companion.place.empty();
    if (!in_place) write_companion(companion, folder);
    if (is_carried)
      carried = std::make_unique<SafetensorsFile>(in_place ? companion.place : folder / companion.name);
  }
  return carried;
}

}  // namespace

namespace {

// Writes the files that sentence-transformers needs beside transformers' files: how a text's rows are pooled,
// and that the result is normalised to length 1.
void write_sentence_modules(const fs::path& folder, const model::Model& model) {
  const model::Pooling pooling = model.head().pooling;
  const auto module = [](int64_t index, const char* path, const char* type) {
    return base::Json{{"idx", index},
                      {"name", text(index)},
                      {"path", path},
                      {"type", text("sentence_transformers.models.", type)}};
  };
  base::make_directories(folder / "1_Pooling");
  base::make_directories(folder / "2_Normalize");
  base::write_json(folder / kModules,
                   base::Json::array({module(0, "", "Transformer"), module(1, "1_Pooling", "Pooling"),
                                      module(2, "2_Normalize", "Normalize")}));
  base::write_json(folder / "1_Pooling" / "config.json",
                   {{"word_embedding_dimension", model.hidden()},
                    {"pooling_mode_cls_token", pooling == model::Pooling::kCls},
                    {"pooling_mode_mean_tokens", pooling == model::Pooling::kMean},
                    {"pooling_mode_max_tokens", false},
                    {"pooling_mode_mean_sqrt_len_tokens", false},
                    {"pooling_mode_weightedmean_tokens", false},
                    {"pooling_mode_lasttoken", pooling == model::Pooling::kLast},
                    {"include_prompt", true}});
  // Beside what a folder that came in says, as the texts that its prompts put in front of others.
  base::Json config = base::Json::object();
  if (fs::exists(folder / kSentenceConfig)) config = base::read_json(folder / kSentenceConfig);
  if (config.is_object() && config.value("similarity_fn_name", base::Json()).is_null())
    config["similarity_fn_name"] = "cosine";
  base::write_json(folder / kSentenceConfig, config);
}

}  // namespace

namespace {

// transformers keeps experts' matrices in stacked parameters, which bitsandbytes leaves as they are.
void require_quantizable(const model::ParameterTable& table, Quantization quantization) {
  if (quantization == Quantization::kNone) return;
  if (table.model.experts().count > 0) {
    throw base::InputError(
        "the model has experts, whose matrices bitsandbytes does not quantise in transformers' folders: "
        "leave "
        "--quantize out");
  }
  for (const model::Bucket& bucket : table.buckets) {
    if (std::ranges::any_of(bucket.parameters,
                            [&](const model::Parameter& each) { return is_linear(bucket, each); }))
      return;
  }
  throw base::InputError("the model's blocks have no linear modules to quantise: leave --quantize out");
}

// Adds quantization_config to config.json, which names the modules of matrices that stay as they are.
void say_quantization(const fs::path& folder, const model::ParameterTable& table,
                      const ExportOptions& options) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> kept{"lm_head"};
  for (const Item& item : items_of(table, options)) {
    const std::string& name = item.info.name;
    if (item.quantized != nullptr || item.info.shape.size() != 2 || !name.ends_with(kWeight)) continue;
    std::string module = name.substr(0, name.size() - kWeight.size());
    if (module != kept.front()) kept.push_back(std::move(module));
  }
  base::Json config = base::read_json(folder / "config.json");
  config["quantization_config"] = quantization_config(options.quantization, config_name(options.type), kept);
  base::write_json(folder / "config.json", config);
}

}  // namespace

void export_hugging_face(const fs::path& folder, const model::ParameterTable& table,
                         const ParameterSource& source, const ExportOptions& options) {
  SLUICE_ASSERT(size_of(options.type) > 0 && options.type != TensorType::kFloat64,
                "exports are float32, bfloat16 or float16");
  require_quantizable(table, options.quantization);
  AtomicFolder output(folder);
  ExportOptions whole = options;
  const std::unique_ptr<SafetensorsFile> carried =
      write_companions(output.part(), options.companions, table.model.head());
  whole.carried = carried.get();
  write_tensors(output.part(), kWeightsStem, table, source, whole);
  fs::remove(output.part() / kCarriedTensors);
  base::write_json(output.part() / "config.json", exported_config(options.companions, table.model,
                                                                  {.dtype = config_name(options.type),
                                                                   .least_positions = options.least_positions,
                                                                   .positions = options.positions}));
  if (options.quantization != Quantization::kNone) say_quantization(output.part(), table, options);
  if (table.model.head().kind == model::HeadKind::kRows) write_sentence_modules(output.part(), table.model);
  if (options.add) options.add(output.part());
  output.commit();
}

namespace {

// PEFT's task type for the model's head.
const char* task_of(const model::HeadStyle& head) {
  switch (head.kind) {
    case model::HeadKind::kVocabulary: return "CAUSAL_LM";
    case model::HeadKind::kSequence: return "SEQ_CLS";
    case model::HeadKind::kTokens: return "TOKEN_CLS";
    case model::HeadKind::kRows: break;
  }
  return "FEATURE_EXTRACTION";
}

// Modules that are trained whole beside the adapters, such as "score".
base::Json modules_to_save(const model::ParameterTable& table) {
  std::vector<std::string> modules;
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (!model::is_of_numbers(parameter)) continue;
      const std::string& tensor = parameter.tensors.front();
      const std::string module = tensor.substr(0, tensor.find('.'));
      if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
    }
  }
  return modules.empty() ? base::Json() : base::Json(modules);
}

// A multimodal model's pattern matches its language model alone: other parts share some module names.
base::Json modules_json(const PeftTargets& targets, const FileNames& names) {
  if (!names.inside() || targets.modules.empty()) return targets.modules;
  return text(R"(model\.language_model\..*\.()",
              base::join({targets.modules.begin(), targets.modules.end()}, "|"), ")");
}

// Ranks and alphas of targets that differ from the adapter's own. PEFT matches the end of a module's or a
// parameter's path.
void add_patterns(const model::Lora& lora, const PeftTargets& targets, base::Json& config) {
  for (const model::LoraTarget& target : model::lora_targets(lora)) {
    if (!target.own) continue;
    const bool parameter =
        target.name.find('.') == std::string::npos && !targets.modules.contains(target.name);
    const std::string pattern = target.name + (parameter ? ".weight" : "");
    config["rank_pattern"][pattern] = target.rank;
    config["alpha_pattern"][pattern] = target.alpha;
  }
}

}  // namespace

void export_adapters(const fs::path& folder, const model::ParameterTable& table,
                     const ParameterSource& source, const std::string& base, const ExportOptions& options) {
  const model::Lora& lora = table.model.lora();
  if (lora.rank == 0) {
    throw base::InputError(text("the model has no adapters to write to ", folder.string(),
                                ": export it whole, or train it with lora.rank above 0"));
  }
  const auto [adapters, targets] = peft_adapters(table);
  // PEFT names adapters by the modules of transformers' classes, not by tensors' names in files.
  FolderRecord modules;
  if (options.record.names.inside()) modules.names.trunk = "model.language_model.";
  AtomicFolder output(folder);
  write_tensors(output.part(), "adapter_model", adapters, source,
                {.type = options.type,
                 .max_shard_bytes = std::numeric_limits<int64_t>::max(),
                 .record = modules,
                 .prefix = "base_model.model."});
  base::Json config = {{"peft_type", "LORA"},
                       {"task_type", task_of(table.model.head())},
                       {"modules_to_save", modules_to_save(table)},
                       {"base_model_name_or_path", base},
                       {"r", lora.rank},
                       {"lora_alpha", lora.alpha},
                       {"target_modules", modules_json(targets, modules.names)},
                       {"lora_dropout", 0.0},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"init_lora_weights", true},
                       {"inference_mode", true}};
  if (lora.dora) config["use_dora"] = true;
  if (!targets.parameters.empty()) config["target_parameters"] = targets.parameters;
  add_patterns(lora, targets, config);
  base::write_json(output.part() / "adapter_config.json", config);
  output.commit();
}

}  // namespace sluice::checkpoint
