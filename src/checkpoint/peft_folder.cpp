#include "checkpoint/peft_folder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "checkpoint/peft_names.h"
#include "checkpoint/tensor_type.h"
#include "model/roles.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Interval;
using base::text;

constexpr std::string_view kPrefix = "base_model.model.";

// An adapter's folder, opened for reading.
class PeftFolder {
 public:
  PeftFolder(const fs::path& folder, const model::Shape& base, const FileNames& names);

  const model::ParameterTable& table() const { return adapters_.table; }
  int64_t rank() const { return table().shape.lora.rank; }
  const std::vector<std::string>& targets() const { return table().shape.lora.targets; }
  // A factor as it is stored; b with what the product is multiplied by. Zeros where a layer has no adapter.
  std::vector<float> read(const model::Bucket& bucket, const model::Parameter& parameter) const;

 private:
  std::vector<std::string> targets_of_file() const;
  std::string stack_of(const std::string& tensor) const;
  const TensorInfo* find(const model::HuggingFaceTensor& tensor) const;
  void require_all_known() const;
  std::string name_of(const model::HuggingFaceTensor& tensor) const {
    return std::string(kPrefix) + names_.of(tensor.name);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(text(file_.location().string(), ": ", what));
  }
  std::string another_base() const {
    return text("the adapter belongs to another base, ",
                base::excerpt(config_.value("base_model_name_or_path", base::Json())),
                ": serve it on that model");
  }

  base::Json config_;
  SafetensorsFile file_;
  FileNames names_;
  PeftAdapters adapters_;
};

// What would change an adapter's result and is not computed.
void require_plain(const base::Json& config, const std::string& name) {
  const auto only = [&](const char* key, const std::set<base::Json>& values) {
    const base::Json* const found = base::find(config, key);
    if (found == nullptr || found->is_null() || values.contains(*found)) return;
    throw InputError(
        text(name, ": ", key, " is ", base::excerpt(*found),
             ", which Sluice does not compute: merge the adapter with PEFT's merge_and_unload()"));
  };
  only("peft_type", {"LORA"});
  for (const char* key : {"use_dora", "lora_bias", "fan_in_fan_out"}) only(key, {false});
  only("bias", {"none"});
  for (const char* key : {"modules_to_save", "trainable_token_indices", "rank_pattern", "alpha_pattern"})
    only(key, {base::Json::array(), base::Json::object()});
}

FileNames module_names(const FileNames& names) {
  FileNames modules;
  if (names.inside()) modules.trunk = "model.language_model.";
  return modules;
}

PeftFolder::PeftFolder(const fs::path& folder, const model::Shape& base, const FileNames& names)
    : config_(base::read_json(folder / "adapter_config.json")),
      file_(folder / "adapter_model.safetensors"),
      names_(module_names(names)) {
  const std::string name = (folder / "adapter_config.json").string();
  require_plain(config_, name);
  const auto rank = base::require<int64_t>(config_, "r", name);
  const auto alpha = base::get_or<double>(config_, "lora_alpha", 8, name);
  const double widened =
      base::get_or<bool>(config_, "use_rslora", false, name) ? std::sqrt(static_cast<double>(rank)) : 1;
  model::Shape shape = base;
  try {
    model::adapt(shape, {.rank = rank, .alpha = alpha * widened, .targets = targets_of_file()});
  } catch (const InputError& error) {
    refuse(text(error.what(), "; ", another_base()));
  }
  if (shape.lora.rank == 0) refuse("r is 0: the folder holds no adapter");
  adapters_ = peft_adapters(model::parameter_table(shape));
  require_all_known();
}

// "mlp.experts.gate_up_proj" of a tensor of a wrapped module, which does not say which parameter it is of.
std::string PeftFolder::stack_of(const std::string& tensor) const {
  if (tensor.find(".base_layer.") != std::string::npos) return "experts.gate_up_proj";
  const std::string path = tensor.substr(0, tensor.find(".lora_"));
  const bool both = file_.find(path + ".base_layer.lora_A.weight") != nullptr;
  const base::Json* const parameters = base::find(config_, "target_parameters");
  const auto is_gate_up = [](const base::Json& each) {
    return each.is_string() && each.get<std::string>().ends_with("gate_up_proj");
  };
  const bool gate_up = !both && parameters != nullptr && std::ranges::any_of(*parameters, is_gate_up);
  return gate_up ? "experts.gate_up_proj" : "experts.down_proj";
}

std::vector<std::string> PeftFolder::targets_of_file() const {
  std::set<std::string> targets;
  for (const TensorInfo& tensor : file_.tensors()) {
    const size_t end = tensor.name.find(".lora_");
    const bool factor = tensor.name.ends_with(".lora_A.weight") || tensor.name.ends_with(".lora_B.weight");
    if (!factor || !tensor.name.starts_with(kPrefix)) {
      refuse(text("tensor '", tensor.name, "' is no factor of LoRA's (", kPrefix,
                  "….lora_A.weight): merge the adapter with PEFT's merge_and_unload()"));
    }
    const std::string path = tensor.name.substr(0, end);
    const bool wrapped = path.ends_with(".experts") || path.ends_with(".experts.base_layer");
    targets.insert(wrapped ? stack_of(tensor.name) : path.substr(path.rfind('.') + 1));
  }
  return {targets.begin(), targets.end()};
}

const TensorInfo* PeftFolder::find(const model::HuggingFaceTensor& tensor) const {
  const TensorInfo* const found = file_.find(name_of(tensor));
  if (found != nullptr && found->shape != tensor.shape) {
    refuse(text("tensor '", found->name, "' has shape ", shape_text(found->shape), ", the model asks for ",
                shape_text(tensor.shape), ": ", another_base()));
  }
  if (found != nullptr && (size_of(found->type) == 0 || found->type == TensorType::kFloat64))
    refuse(text("tensor '", found->name, "' is ", found->format_type, ", expected F32, BF16 or F16"));
  return found;
}

// Every tensor of the file is one of the model's, and no factor lacks its other one.
void PeftFolder::require_all_known() const {
  std::set<std::string> known;
  for (const model::Bucket& bucket : table().buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      const model::HuggingFaceTensor tensor = model::hugging_face_tensors(bucket, parameter).front();
      if (find(tensor) != nullptr) known.insert(name_of(tensor));
    }
  }
  for (const TensorInfo& tensor : file_.tensors()) {
    if (!known.contains(tensor.name))
      refuse(text("tensor '", tensor.name, "' adapts what the model does not have: ", another_base()));
    std::string other = tensor.name;
    char& letter = other[other.rfind(".weight") - 1];
    letter = letter == 'A' ? 'B' : 'A';
    if (!known.contains(other))
      refuse(text("tensor '", other, "' is missing beside '", tensor.name,
                  "': fetch or save the adapter again"));
  }
}

std::vector<float> PeftFolder::read(const model::Bucket& bucket, const model::Parameter& parameter) const {
  std::vector<float> stored(static_cast<size_t>(parameter.size()));
  const model::HuggingFaceTensor tensor = model::hugging_face_tensors(bucket, parameter).front();
  const TensorInfo* const found = find(tensor);
  if (found == nullptr) return stored;
  std::vector<float> values(stored.size());
  to_floats(file_.data(*found), found->type, std::ssize(values), values.data());
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    refuse(text("tensor '", found->name,
                "' holds a number that is not finite: fetch or save the adapter again"));
  const auto factor =
      static_cast<float>(parameter.start == model::Start::kAdapter ? 1 : table().shape.lora.factor());
  for (int64_t row = 0; row < parameter.rows; ++row) {
    for (int64_t column = 0; column < parameter.columns; ++column) {
      const int64_t place = tensor.order.first_of(row) + column * tensor.order.column_stride;
      stored[static_cast<size_t>(row * parameter.columns + column)] =
          factor * values[static_cast<size_t>(place)];
    }
  }
  return stored;
}

model::Shape shape_of(const model::Shape& base, const std::vector<std::unique_ptr<PeftFolder>>& folders) {
  std::set<std::string> targets;
  int64_t rank = 0;
  for (const auto& folder : folders) {
    targets.insert(folder->targets().begin(), folder->targets().end());
    rank = std::max(rank, folder->rank());
  }
  model::Shape shape = base;
  model::adapt(shape, {.rank = 1, .alpha = 1, .targets = {targets.begin(), targets.end()}});
  // The sum may be above a matrix's own rank, though no adapter's is.
  shape.lora.rank = rank * std::ssize(folders);
  shape.lora.alpha = static_cast<double>(shape.lora.rank);
  return shape;
}

// The factors of all adapters in one table's parameters, by bucket and first element.
class Factors {
 public:
  explicit Factors(model::ParameterTable table) : table_(std::move(table)) {}

  // Columns of left, or of each expert's rows of right, from `begin` on.
  void add(const PeftFolder& folder, int64_t begin) {
    for (const model::Bucket& bucket : folder.table().buckets) {
      for (const model::Parameter& parameter : bucket.parameters)
        place(parameter, folder.read(bucket, parameter), own(bucket.position, parameter), begin);
    }
  }
  const model::ParameterTable& table() const { return table_; }
  void read(int bucket, Interval interval, float* values) const {
    for (const auto& [first, factor] : by_bucket_.at(static_cast<size_t>(bucket))) {
      const Interval common = base::intersect({first, first + std::ssize(factor)}, interval);
      if (common.empty()) continue;
      std::copy_n(factor.begin() + (common.begin - first), common.size(),
                  values + (common.begin - interval.begin));
    }
  }
  void make_room() {
    by_bucket_.resize(table_.buckets.size());
    for (const model::Bucket& bucket : table_.buckets) {
      for (const model::Parameter& parameter : bucket.parameters) {
        if (parameter.factor != model::Factor::kNone)
          by_bucket_[static_cast<size_t>(bucket.index)][parameter.offset].resize(
              static_cast<size_t>(parameter.size()));
      }
    }
  }

 private:
  struct Own {
    const model::Parameter* parameter = nullptr;
    float* values = nullptr;
  };
  Own own(int64_t position, const model::Parameter& like) {
    const Interval buckets = table_.program.at(position).own;
    for (int64_t index = buckets.begin; index < buckets.end; ++index) {
      for (const model::Parameter& parameter : table_.buckets[static_cast<size_t>(index)].parameters) {
        if (parameter.role == like.role && parameter.factor == like.factor &&
            parameter.adapted == like.adapted)
          return {&parameter, by_bucket_[static_cast<size_t>(index)][parameter.offset].data()};
      }
    }
    SLUICE_ASSERT(false, like.name);
    return {};
  }
  static void place(const model::Parameter& from, const std::vector<float>& values, const Own& to,
                    int64_t begin) {
    const int64_t experts = std::max<int64_t>(1, from.experts);
    const bool left = from.factor == model::Factor::kLeft;
    const int64_t rank = left ? from.columns : from.rows / experts,
                  all = left ? to.parameter->columns : to.parameter->rows / experts;
    for (int64_t row = 0; row < from.rows; ++row) {
      const int64_t to_row = left ? row : row / rank * all + begin + row % rank;
      std::copy_n(values.data() + row * from.columns, from.columns,
                  to.values + to_row * to.parameter->columns + (left ? begin : 0));
    }
  }

  model::ParameterTable table_;
  std::vector<std::map<int64_t, std::vector<float>>> by_bucket_;
};

// Rows that stayed in the cache are made into keys and values of whichever adapter asks.
void require_servable(const model::ParameterTable& table) {
  for (const model::Bucket& bucket : table.buckets) {
    for (const model::Parameter& parameter : bucket.parameters) {
      if (parameter.role != model::roles::kKv || parameter.factor == model::Factor::kNone) continue;
      throw InputError(
          "adapters of kv_b_proj cannot be served side by side, as cached rows are shared by all "
          "heads: export the model merged, or train without kv_b_proj");
    }
  }
}

}  // namespace

SideBySide side_by_side(const model::Shape& base, const FileNames& names, BaseSource read,
                        const std::vector<fs::path>& folders) {
  std::vector<std::unique_ptr<PeftFolder>> opened;
  for (const fs::path& folder : folders) opened.push_back(std::make_unique<PeftFolder>(folder, base, names));
  const model::Shape shape = shape_of(base, opened);
  const auto factors = std::make_shared<Factors>(model::parameter_table(shape));
  require_servable(factors->table());
  factors->make_room();
  const int64_t rank = shape.lora.rank / std::ssize(opened);
  for (size_t i = 0; i < opened.size(); ++i) factors->add(*opened[i], static_cast<int64_t>(i) * rank);
  return {shape, [factors, read = std::move(read)](int bucket, Interval interval, float* values) {
            read(factors->table().buckets[static_cast<size_t>(bucket)], interval, values);
            factors->read(bucket, interval, values);
          }};
}

}  // namespace sluice::checkpoint
