// The registry of families. A new one is a file beside this one, its reader's name here, and a row.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/families/family.h"

namespace sluice::model {

Read read_deepseek_v3, read_gemma2, read_gemma3, read_gla, read_glm4_moe, read_glm4_moe_lite, read_gpt_oss,
    read_granite, read_granite_hybrid, read_llama, read_mamba2, read_mistral, read_mixtral, read_olmo2,
    read_olmo3, read_olmo_hybrid, read_olmoe, read_phi3, read_qwen2, read_qwen2_moe, read_qwen3, read_qwen3_5,
    read_qwen3_5_moe, read_qwen3_moe, read_qwen3_next, read_smollm3;
extern const Names kGlaNames, kGlmNames, kGptOssNames, kGraniteHybridNames, kMamba2Names, kMixtralNames,
    kOlmoHybridNames, kPhi3Names, kQwen3NextNames, kQwen3_5Names;

std::span<const Family> families() {
  static const Family kFamilies[] = {
      {"llama", "LlamaForCausalLM", read_llama, {}},
      {"mistral", "MistralForCausalLM", read_mistral, {}},
      {"qwen2", "Qwen2ForCausalLM", read_qwen2, {}},
      {"qwen3", "Qwen3ForCausalLM", read_qwen3, {}},
      {"phi3", "Phi3ForCausalLM", read_phi3, kPhi3Names},
      {"granite", "GraniteForCausalLM", read_granite, {}},
      {"smollm3", "SmolLM3ForCausalLM", read_smollm3, {}},
      {"olmo2", "Olmo2ForCausalLM", read_olmo2, {}},
      {"gemma2", "Gemma2ForCausalLM", read_gemma2, {}},
      {"gemma3_text", "Gemma3ForCausalLM", read_gemma3, {}},
      {"mixtral", "MixtralForCausalLM", read_mixtral, kMixtralNames},
      {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe, {}},
      {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, {}},
      {"olmoe", "OlmoeForCausalLM", read_olmoe, {}},
      {"gpt_oss", "GptOssForCausalLM", read_gpt_oss, kGptOssNames},
      {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, kGlmNames},
      {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3, kGlmNames},
      {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", read_glm4_moe_lite, kGlmNames},
      {"olmo3", "Olmo3ForCausalLM", read_olmo3, {}},
      {"olmo_hybrid", "OlmoHybridForCausalLM", read_olmo_hybrid, kOlmoHybridNames},
      {"qwen3_5_text", "Qwen3_5ForCausalLM", read_qwen3_5, kQwen3_5Names},
      {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", read_qwen3_5_moe, kQwen3_5Names},
      {"qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, kQwen3NextNames},
      {"granitemoehybrid", "GraniteMoeHybridForCausalLM", read_granite_hybrid, kGraniteHybridNames},
      {"mamba2", "Mamba2ForCausalLM", read_mamba2, kMamba2Names, "backbone"},
      {"gla", "GLAForCausalLM", read_gla, kGlaNames},
  };
  return kFamilies;
}

const Family* family_of(std::string_view model_type) {
  const auto found = std::ranges::find(families(), model_type, &Family::model_type);
  return found != families().end() ? &*found : nullptr;
}

const Family& family_of(const Shape& shape) {
  static const Family kNone;
  if (shape.counted) return kNone;
  const Family* const found = family_of(shape.family);
  SLUICE_ASSERT(found != nullptr, base::text("no family ", shape.family));
  return *found;
}

void name_tensors(const Shape& shape, Weight& weight) {
  for (const TensorNames& names : family_of(shape).names) {
    if (names.role != weight.role) continue;
    weight.tensors.clear();
    for (const std::string_view tensor : names.tensors) {
      if (!tensor.empty()) weight.tensors.emplace_back(tensor);
    }
    if (names.stacked) weight.stacked = shape.experts.count;
  }
}

}  // namespace sluice::model
