#include "model/family.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/config_keys.h"

namespace sluice::model {
namespace {

using base::Json;

constexpr std::string_view kMistralKeys[] = {"sliding_window"};
constexpr std::string_view kQwenKeys[] = {"use_sliding_window", "sliding_window", "max_window_layers",
                                          "layer_types"};

void read_llama(const Json&, const std::string&, Shape&) {}

void write_llama(const Shape&, Json& config) {
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
}

void read_mistral(const Json& config, const std::string& name, Shape&) {
  require_off(config, "sliding_window", name);
  if (config.contains("sliding_window")) return;
  throw base::InputError(
      base::text(name, ": sliding_window is missing, which stands for 4096 in a mistral config; ",
                 "Sluice computes only models without it: write null to say so"));
}

void write_mistral(const Shape&, Json& config) { config["sliding_window"] = nullptr; }

// Windows are off unless a key of their own says otherwise, whatever their width.
void read_qwen(const Json& config, const std::string& name) {
  require_off(config, "use_sliding_window", name);
  if (!config.contains("layer_types") || config.at("layer_types").is_null()) return;
  const Json& types = config.at("layer_types");
  if (!types.is_array()) refuse(name, "layer_types", types, "a list of types");
  for (const Json& type : types) {
    if (type != "full_attention") refuse(name, "layer_types", type, "full_attention");
  }
}

void read_qwen2(const Json& config, const std::string& name, Shape& shape) {
  read_qwen(config, name);
  shape.qkv_bias = true;
}

void read_qwen3(const Json& config, const std::string& name, Shape& shape) {
  read_qwen(config, name);
  shape.qk_norm = true;
}

void write_qwen2(const Shape&, Json& config) { config["use_sliding_window"] = false; }

void write_qwen3(const Shape& shape, Json& config) {
  write_qwen2(shape, config);
  config["attention_bias"] = false;
}

constexpr FamilyEntry kFamilies[] = {
    {.family = Family::kLlama,
     .model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .keys = {},
     .read = read_llama,
     .write = write_llama},
    {.family = Family::kMistral,
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .absent_kv_heads = 8,
     .keys = kMistralKeys,
     .read = read_mistral,
     .write = write_mistral},
    {.family = Family::kQwen2,
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .absent_kv_heads = 32,
     .keys = kQwenKeys,
     .read = read_qwen2,
     .write = write_qwen2},
    {.family = Family::kQwen3,
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .absent_kv_heads = 32,
     .absent_head_dim = 128,
     .keys = kQwenKeys,
     .read = read_qwen3,
     .write = write_qwen3},
};

}  // namespace

std::span<const FamilyEntry> families() { return kFamilies; }

const FamilyEntry& entry_of(Family family) {
  const auto* const found = std::ranges::find(kFamilies, family, &FamilyEntry::family);
  SLUICE_ASSERT(found != std::end(kFamilies), "a family that is not registered");
  return *found;
}

}  // namespace sluice::model
