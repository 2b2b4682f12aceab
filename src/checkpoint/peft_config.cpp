#include "checkpoint/peft_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::InputError;
using base::Json;
using base::text;

constexpr base::Range<int64_t> kPeftRanks{1, 1 << 16};
constexpr base::Range<double> kPeftAlphas{-1e6, 1e6};

// Keys about training or about modules' places; the tensors' names in the file give the places, too.
constexpr std::string_view kWithoutEffect[] = {"peft_type",
                                               "task_type",
                                               "auto_mapping",
                                               "peft_version",
                                               "base_model_name_or_path",
                                               "revision",
                                               "inference_mode",
                                               "r",
                                               "target_modules",
                                               "exclude_modules",
                                               "lora_alpha",
                                               "lora_dropout",
                                               "use_rslora",
                                               "use_dora",
                                               "rank_pattern",
                                               "alpha_pattern",
                                               "layers_pattern",
                                               "megatron_core",
                                               "layers_to_transform",
                                               "megatron_config",
                                               "loftq_config",
                                               "eva_config",
                                               "runtime_config",
                                               "target_parameters",
                                               "init_lora_weights",
                                               "qalora_group_size",
                                               "num_virtual_tokens"};

bool is_off(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json("none") ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Initialisations that leave the base model unchanged. The others (PiSSA, OLoRA, CorDA, LoftQ) subtract from
// it.
bool keeps_the_base(const Json& value) {
  const std::set<Json> kept = {true, "gaussian", "eva", "orthogonal"};
  return is_off(value) || kept.contains(value);
}

[[noreturn]] void refuse_key(const std::string& name, const std::string& key, const Json& value) {
  throw InputError(text(name, ": ", key, " is ", base::excerpt(value),
                        ", which Sluice does not compute: merge the adapter with PEFT's merge_and_unload()"));
}

void require_computed(const Json& config, const std::string& name) {
  const auto method = base::get_or<std::string>(config, "peft_type", "LORA", name);
  if (method != "LORA") refuse_key(name, "peft_type", method);
  for (const auto& [key, value] : config.items()) {
    const bool known = std::ranges::find(kWithoutEffect, key) != std::end(kWithoutEffect);
    if (!known && !is_off(value)) refuse_key(name, key, value);
  }
  const Json* const start = base::find(config, "init_lora_weights");
  if (start != nullptr && !keeps_the_base(*start)) {
    throw InputError(text(name, ": init_lora_weights is ", base::excerpt(*start),
                          ", which changes the base model: save the adapter with PEFT's "
                          "path_initial_model_for_weight_conversion, or merge it with merge_and_unload()"));
  }
}

std::regex pattern_of(const std::string& pattern, const std::string& key, const std::string& name) {
  try {
    return std::regex("(.*\\.)?(" + pattern + ")");
  } catch (const std::regex_error&) {
    throw InputError(text(name, ": ", key, " has '", pattern,
                          "', which is no regular expression: give a module's name, as \"q_proj\""));
  }
}

template <typename T>
std::vector<std::pair<std::regex, T>> patterns_of(const Json& config, const char* key,
                                                  const base::Range<T>& range, const std::string& name) {
  std::vector<std::pair<std::regex, T>> patterns;
  const Json* const found = base::find(config, key);
  if (found == nullptr || found->is_null()) return patterns;
  if (!found->is_object())
    throw InputError(text(name, ": ", key, " is ", base::excerpt(*found), ", expected an object"));
  for (const auto& [pattern, value] : found->items())
    patterns.emplace_back(pattern_of(pattern, key, name),
                          base::require_in(*found, pattern, range, text(name, ": ", key)));
  return patterns;
}

template <typename T>
T value_for(const std::vector<std::pair<std::regex, T>>& patterns, const std::string& module, T otherwise) {
  for (const auto& [pattern, value] : patterns) {
    if (std::regex_match(module, pattern)) return value;
  }
  return otherwise;
}

Json read_adapter_config(const fs::path& folder) {
  const fs::path path = folder / "adapter_config.json";
  if (!fs::exists(path)) {
    throw InputError(text("there is no ", path.string(),
                          ": name a folder that PEFT's save_pretrained() or export --adapters wrote"));
  }
  return base::read_json(path);
}

}  // namespace

PeftConfig::PeftConfig(const fs::path& folder) : name_((folder / "adapter_config.json").string()) {
  const Json config = read_adapter_config(folder);
  require_computed(config, name_);
  base_model_ = base::excerpt(config.value("base_model_name_or_path", Json()));
  rank_ = base::require_in(config, "r", kPeftRanks, name_);
  alpha_ = config.contains("lora_alpha") ? base::require_in(config, "lora_alpha", kPeftAlphas, name_) : 8;
  rank_stabilised_ = base::get_or<bool>(config, "use_rslora", false, name_);
  dora_ = base::get_or<bool>(config, "use_dora", false, name_);
  ranks_ = patterns_of(config, "rank_pattern", kPeftRanks, name_);
  alphas_ = patterns_of(config, "alpha_pattern", kPeftAlphas, name_);
  target_parameters_ = base::get_or<std::vector<std::string>>(config, "target_parameters", {}, name_);
}

PeftConfig::Scale PeftConfig::scale_of(const std::string& module) const {
  const int64_t rank = value_for(ranks_, module, rank_);
  const double alpha = value_for(alphas_, module, alpha_);
  const auto divisor = static_cast<double>(rank);
  return {.rank = rank, .factor = alpha / (rank_stabilised_ ? std::sqrt(divisor) : divisor)};
}

std::vector<int64_t> PeftConfig::ranks() const {
  std::set<int64_t> all{rank_};
  for (const auto& [pattern, rank] : ranks_) all.insert(rank);
  return {all.begin(), all.end()};
}

}  // namespace sluice::checkpoint
