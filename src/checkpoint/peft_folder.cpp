#include "checkpoint/peft_folder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/peft_config.h"
#include "checkpoint/peft_names.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_type.h"
#include "model/lora_targets.h"
#include "model/roles.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Interval;
using base::text;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kWrapped = ".base_layer";
constexpr std::string_view kMagnitude = ".lora_magnitude_vector";  // DoRA's

// An adapter's folder, opened for reading. Its matrices may have different ranks, so there is one table of
// parameters for each rank.
class PeftFolder {
 public:
  PeftFolder(const fs::path& folder, const model::Model& base, const FileNames& names);

  int64_t rank() const { return config_.ranks().back(); }
  const std::vector<std::string>& targets() const {
    return tables_.begin()->second.table.model.lora().targets;
  }
  // Gives the factor that a model has already for the product of an adapter's matrices.
  using OwnFactor = std::function<double(const model::Bucket&, const model::Parameter&)>;
  // Calls visit(bucket, parameter, values) for each factor of the file in stored order. The product's factor
  // over `own`, by default 1, is multiplied into b.
  template <typename Visit>
  void for_each_factor(Visit visit, const OwnFactor& own = {}) const {
    for (const Factor& factor : factors_) {
      const bool divides = own && factor.parameter->start == model::Start::kZero;
      const double scale = factor.scale / (divides ? own(*factor.bucket, *factor.parameter) : 1.0);
      visit(*factor.bucket, *factor.parameter, values_of(factor, scale));
    }
  }
  std::string name() const { return file_.location().string(); }
  bool dora() const { return config_.dora(); }
  // The matrices that have magnitudes.
  int64_t magnitudes() const {
    return std::ranges::count_if(
        factors_, [](const Factor& factor) { return factor.parameter->factor == model::Factor::kMagnitude; });
  }

 private:
  struct Factor {
    const model::Bucket* bucket;
    const model::Parameter* parameter;
    const TensorInfo* tensor;
    double scale;
  };
  std::vector<std::string> targets_of_file() const;
  std::string inner_stack() const;
  std::string stack_of(const std::string& tensor) const;
  // PEFT's path, as patterns match it, for the matrix to which a factor with this role belongs.
  std::string module_of(const std::string& tensor, std::string_view role) const;
  void find_factors();
  void require_shape(const TensorInfo& tensor, const std::vector<int64_t>& expected) const;
  void require_rank(const Factor& left, const model::Parameter& right) const;
  void require_all_known() const;
  std::vector<float> values_of(const Factor& factor, double scale) const;
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(text(file_.location().string(), ": ", what));
  }
  std::string another_base() const {
    return text("the adapter belongs to another base, ", config_.base_model(), ": serve it on that model");
  }

  PeftConfig config_;
  SafetensorsFile file_;
  FileNames names_;
  std::map<int64_t, PeftAdapters> tables_;  // by rank
  std::vector<Factor> factors_;             // each left factor, then its right one
};

FileNames module_names(const FileNames& names) {
  FileNames modules;
  if (names.inside()) modules.trunk = "model.language_model.";
  return modules;
}

// `rank` may exceed a matrix's own limit; the caller knows which matrices have this rank.
model::Model with_adapters(const model::Model& base, const std::vector<std::string>& targets, int64_t rank,
                           bool dora) {
  return model::with_rank(model::adapted(base, {.rank = 1, .alpha = 1, .targets = targets, .dora = dora}),
                          rank);
}

PeftFolder::PeftFolder(const fs::path& folder, const model::Model& base, const FileNames& names)
    : config_(folder), file_(folder / "adapter_model.safetensors"), names_(module_names(names)) {
  const std::vector<std::string> targets = targets_of_file();
  try {
    for (const int64_t rank : config_.ranks())
      tables_.emplace(
          rank, peft_adapters(model::parameter_table(with_adapters(base, targets, rank, config_.dora()))));
  } catch (const InputError& error) {
    refuse(text(error.what(), "; ", another_base()));
  }
  find_factors();
  require_all_known();
}

// The experts' parameter that PEFT wraps first: "gate_up_proj", or "up_proj" without a gate. "" if there is
// none.
std::string PeftFolder::inner_stack() const {
  for (const std::string& target : config_.target_parameters()) {
    if (target.ends_with("up_proj")) return target.substr(target.rfind('.') + 1);
  }
  return "";
}

// "experts.gate_up_proj" for a tensor of a wrapped module, whose name does not give the parameter.
std::string PeftFolder::stack_of(const std::string& tensor) const {
  const std::string path = tensor.substr(0, tensor.find(".lora_")), inner = inner_stack();
  const bool within = path.ends_with(kWrapped);
  const bool both = file_.find(path + std::string(kWrapped) + ".lora_A.weight") != nullptr;
  if (!within && (both || inner.empty())) return "experts.down_proj";
  return "experts." + (inner.empty() ? "gate_up_proj" : inner);
}

std::vector<std::string> PeftFolder::targets_of_file() const {
  std::set<std::string> targets;
  for (const TensorInfo& tensor : file_.tensors()) {
    const size_t end = tensor.name.find(".lora_");
    const bool factor = tensor.name.ends_with(".lora_A.weight") || tensor.name.ends_with(".lora_B.weight") ||
                        (config_.dora() && tensor.name.ends_with(kMagnitude));
    if (!factor || !tensor.name.starts_with(kPrefix)) {
      refuse(text("tensor '", tensor.name, "' is no factor of LoRA's (", kPrefix,
                  "….lora_A.weight): merge the adapter with PEFT's merge_and_unload()"));
    }
    const std::string path = tensor.name.substr(0, end);
    const bool wrapped = path.ends_with(".experts") || path.ends_with(".experts.base_layer");
    targets.insert(wrapped ? stack_of(tensor.name) : path.substr(path.rfind('.') + 1));
  }
  if (targets.empty()) refuse("there are no tensors: the folder holds no adapter");
  return {targets.begin(), targets.end()};
}

std::string PeftFolder::module_of(const std::string& tensor, std::string_view role) const {
  std::string path = tensor.substr(0, tensor.find(".lora_"));
  if (path.ends_with(kWrapped)) path.resize(path.size() - kWrapped.size());
  if (role == model::roles::kExpertsGateUp) return path + "." + inner_stack();
  if (role == model::roles::kExpertsDown) return path + ".down_proj";
  const std::string parameter = path + ".weight";
  const auto names_it = [&](const std::string& target) {
    return parameter == target || parameter.ends_with("." + target);
  };
  return std::ranges::any_of(config_.target_parameters(), names_it) ? parameter : path;
}

void PeftFolder::require_shape(const TensorInfo& tensor, const std::vector<int64_t>& expected) const {
  if (tensor.shape != expected) {
    refuse(text("tensor '", tensor.name, "' has shape ", shape_text(tensor.shape), ", the model asks for ",
                shape_text(expected), ": ", another_base()));
  }
  if (size_of(tensor.type) == 0 || tensor.type == TensorType::kFloat64)
    refuse(text("tensor '", tensor.name, "' is ", tensor.format_type, ", expected F32, BF16 or F16"));
}

void PeftFolder::require_rank(const Factor& left, const model::Parameter& right) const {
  const int64_t experts = std::max<int64_t>(1, left.parameter->experts);
  const int64_t rank = left.parameter->columns, rows = left.parameter->rows / experts,
                columns = right.columns;
  if (rank <= std::min(rows, columns)) return;
  refuse(text("tensor '", left.tensor->name, "' has rank ", rank, ", above the rank of its matrix, ", columns,
              " x ", rows, ": train the adapter with a rank of at most ", std::min(rows, columns)));
}

void PeftFolder::find_factors() {
  const std::vector<model::Bucket>& buckets = tables_.begin()->second.table.buckets;
  for (size_t at = 0; at < buckets.size(); ++at) {
    for (size_t i = 0; i < buckets[at].parameters.size(); ++i) {
      const model::Parameter& any = buckets[at].parameters[i];
      if (any.factor == model::Factor::kNone) continue;
      const std::string name = names_.of(model::hugging_face_tensors(buckets[at], any).front().name);
      const TensorInfo* const tensor = file_.find(std::string(kPrefix) + name);
      if (tensor == nullptr) continue;
      const auto [rank, scale] = config_.scale_of(module_of(name, any.role));
      const model::Bucket& bucket = tables_.at(rank).table.buckets[at];
      const model::Parameter& parameter = bucket.parameters[i];
      require_shape(*tensor, model::hugging_face_tensors(bucket, parameter).front().shape);
      factors_.push_back({&bucket, &parameter, tensor, parameter.start == model::Start::kZero ? scale : 1});
      if (parameter.factor == model::Factor::kLeft) require_rank(factors_.back(), bucket.parameters[i + 1]);
    }
  }
}

// Checks that every tensor of the file belongs to the model, and that no factor lacks its partner.
void PeftFolder::require_all_known() const {
  std::set<std::string> known;
  for (const Factor& factor : factors_) known.insert(factor.tensor->name);
  for (const TensorInfo& tensor : file_.tensors()) {
    if (!known.contains(tensor.name))
      refuse(text("tensor '", tensor.name, "' adapts what the model does not have: ", another_base()));
    const std::string path = tensor.name.substr(0, tensor.name.find(".lora_"));
    std::vector<std::string> ends{".lora_A.weight", ".lora_B.weight"};
    if (config_.dora()) ends.emplace_back(kMagnitude);
    for (const std::string& end : ends) {
      if (!known.contains(path + end))
        refuse(text("tensor '", path, end, "' is missing beside '", tensor.name,
                    "': fetch or save the adapter again"));
    }
  }
}

std::vector<float> PeftFolder::values_of(const Factor& factor, double scale) const {
  const auto& [bucket, parameter, found, unused] = factor;
  const model::HuggingFaceTensor tensor = model::hugging_face_tensors(*bucket, *parameter).front();
  std::vector<float> values(static_cast<size_t>(parameter->size())), stored(values.size());
  to_floats(file_.data(*found), found->type, std::ssize(values), values.data());
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    refuse(text("tensor '", found->name,
                "' holds a number that is not finite: fetch or save the adapter again"));
  for (int64_t row = 0; row < parameter->rows; ++row) {
    for (int64_t column = 0; column < parameter->columns; ++column) {
      const int64_t place = tensor.order.first_of(row) + column * tensor.order.column_stride;
      stored[static_cast<size_t>(row * parameter->columns + column)] =
          static_cast<float>(scale * values[static_cast<size_t>(place)]);
    }
  }
  return stored;
}

model::Model adapted_by(const model::Model& base, const std::vector<std::unique_ptr<PeftFolder>>& folders) {
  std::set<std::string> targets;
  int64_t rank = 0;
  for (const auto& folder : folders) {
    targets.insert(folder->targets().begin(), folder->targets().end());
    rank = std::max(rank, folder->rank());
  }
  const bool dora = folders.front()->dora();
  return with_adapters(base, {targets.begin(), targets.end()}, rank * std::ssize(folders), dora);
}

// The factors of all adapters in the parameters of one table, by bucket and first element.
class Factors {
 public:
  explicit Factors(model::ParameterTable table) : table_(std::move(table)) {}

  // Fills an adapter's columns of left factors and rows of right ones, for each expert, from `begin` on.
  void add(const PeftFolder& folder, int64_t begin) {
    folder.for_each_factor([&](const model::Bucket& bucket, const model::Parameter& parameter,
                               const std::vector<float>& values) {
      place(parameter, values, own(bucket.position, parameter), begin);
    });
  }
  // Fills the adapter's values in with the factors of the table's model. InputError if it has none for them.
  void add_in_place(const PeftFolder& folder) {
    const auto own_factor = [&](const model::Bucket& bucket, const model::Parameter& parameter) {
      return model::adapter_factor(table_.model.lora(), *require_own(folder, bucket, parameter).parameter);
    };
    folder.for_each_factor(
        [&](const model::Bucket& bucket, const model::Parameter& parameter,
            const std::vector<float>& values) {
          place(parameter, values, require_own(folder, bucket, parameter), 0);
        },
        own_factor);
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
    return {};
  }
  Own require_own(const PeftFolder& folder, const model::Bucket& bucket, const model::Parameter& like) {
    const Own found = own(bucket.position, like);
    const auto refuse = [&](const std::string& fault) { throw InputError(text(folder.name(), ": ", fault)); };
    const std::string tensor = bucket.path + like.tensors.front();
    if (found.parameter == nullptr) {
      refuse(text("tensor '", tensor,
                  "' adapts a matrix that lora.targets leaves out: add it, or leave the "
                  "folder out"));
    }
    if (!found.parameter->trained)
      refuse(text("tensor '", tensor, "' is frozen in this run: leave it out of train.freeze"));
    const bool left = like.factor == model::Factor::kLeft;
    const int64_t experts = std::max<int64_t>(1, like.experts);
    const auto rank_of = [&](const model::Parameter& of) { return left ? of.columns : of.rows / experts; };
    if (rank_of(like) > rank_of(*found.parameter)) {
      refuse(text("tensor '", tensor, "' has rank ", rank_of(like), ", above the run's ",
                  rank_of(*found.parameter), ": set lora.rank to at least ", rank_of(like)));
    }
    return found;
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

// InputError for adapters of kv_b_proj: cached latents serve all adapters, each with its own kv_b_proj.
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

// Only one adapter's scales can be in place, and all its matrices must have theirs.
void require_one_scale(const std::vector<std::unique_ptr<PeftFolder>>& folders, const model::Model& model) {
  const auto decomposed = std::ranges::find_if(folders, [](const auto& folder) { return folder->dora(); });
  if (decomposed == folders.end()) return;
  const std::string& name = (*decomposed)->name();
  if (folders.size() > 1) {
    throw InputError(text(name,
                          ": the adapter is DoRA's, and one of several: give it alone, or merge it with "
                          "PEFT's merge_and_unload()"));
  }
  int64_t all = 0;
  for (const auto& bucket : model::parameter_table(model).buckets)
    all += std::ranges::count(bucket.parameters, model::Factor::kMagnitude, &model::Parameter::factor);
  if ((*decomposed)->magnitudes() == all) return;
  throw InputError(text(name,
                        ": the adapter is DoRA's, and of some layers alone: merge it with PEFT's "
                        "merge_and_unload()"));
}

}  // namespace

ParameterSource in_place_of(const model::ParameterTable& tuned, const FileNames& names,
                            const fs::path& folder) {
  const PeftFolder opened(folder, model::untuned(tuned.model), names);
  if (opened.dora()) {
    throw InputError(text(opened.name(),
                          ": the adapter is DoRA's, whose magnitudes the run's adapters lack: "
                          "leave the folder out, and evaluate it with eval"));
  }
  const auto factors = std::make_shared<Factors>(tuned);
  factors->make_room();
  factors->add_in_place(opened);
  return [factors](int bucket, Interval interval, float* values) { factors->read(bucket, interval, values); };
}

SideBySide side_by_side(const model::Model& base, const FileNames& names, BaseSource read,
                        const std::vector<fs::path>& folders) {
  std::vector<std::unique_ptr<PeftFolder>> opened;
  for (const fs::path& folder : folders) opened.push_back(std::make_unique<PeftFolder>(folder, base, names));
  const model::Model model = adapted_by(base, opened);
  require_one_scale(opened, model);
  const auto factors = std::make_shared<Factors>(model::parameter_table(model));
  require_servable(factors->table());
  factors->make_room();
  const int64_t rank = model.lora().rank / std::ssize(opened);
  for (size_t i = 0; i < opened.size(); ++i) factors->add(*opened[i], static_cast<int64_t>(i) * rank);
  return {model, [factors, read = std::move(read)](int bucket, Interval interval, float* values) {
            read(factors->table().buckets[static_cast<size_t>(bucket)], interval, values);
            factors->read(bucket, interval, values);
          }};
}

}  // namespace sluice::checkpoint
