#include "model/wrapped.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/families/reader.h"

namespace sluice::model {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kText = "text_config";
constexpr const char* kTied = "tie_word_embeddings";

constexpr Wrapper kWrappers[] = {
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text", "qwen3_5_text"},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", "qwen3_5_moe_text"},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", "qwen3"},
    {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text", "qwen3_moe",
     /*normalised=*/true},
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", "gemma3_text"},
    {"gemma4", "Gemma4ForConditionalGeneration", "gemma4_text", "gemma4_text"},
    {"llama4", "Llama4ForConditionalGeneration", "llama4_text", "llama4_text"},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral", "mistral"},
    {"mistral3", "Mistral3ForConditionalGeneration", "ministral3", "ministral3"},
    {"mistral3", "Mistral3ForConditionalGeneration", "mistral4", "mistral4"},
    {"internvl", "InternVLForConditionalGeneration", "qwen2", "qwen2"},
    {"internvl", "InternVLForConditionalGeneration", "qwen3", "qwen3"},
};

// Text has one position for each token, so sections of several positions have no effect.
void drop_sections(Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!config.contains(key) || !config.at(key).is_object()) continue;
    Json& rope = config.at(key);
    for (const char* section : {"mrope_section", "mrope_interleaved"}) rope.erase(section);
    for (const char* type : {"rope_type", "type"}) {
      if (rope.contains(type) && rope.at(type) == "mrope") rope[type] = "default";
    }
  }
}

[[noreturn]] void refuse_other(const Json& config, const std::string& name) {
  std::vector<std::string> known;
  for (const Wrapper& wrapper : kWrappers) {
    if (std::ranges::find(known, wrapper.model_type) == known.end()) known.emplace_back(wrapper.model_type);
  }
  const Json* const type = base::find(config, "model_type");
  throw InputError(text(name, ": the model is multimodal (model_type ",
                        type == nullptr ? "is missing" : base::excerpt(*type),
                        "), and Sluice opens the language models of ", base::join(known, ", "),
                        " where they are: of another, make the object in text_config a config.json of its "
                        "own, beside its weights"));
}

}  // namespace

std::span<const Wrapper> wrappers() { return kWrappers; }

const Wrapper* wrapper_of(const Json& config) {
  const Json* const type = base::find(config, "model_type");
  if (type == nullptr || !config.contains(kText)) return nullptr;
  const Json* const inner = base::find(config.at(kText), "model_type");
  const Wrapper* first = nullptr;
  for (const Wrapper& wrapper : kWrappers) {
    if (*type != Json(std::string(wrapper.model_type))) continue;
    if (inner == nullptr || *inner == Json(std::string(wrapper.text_type))) return &wrapper;
    if (first == nullptr) first = &wrapper;
  }
  return first;
}

namespace {

// The language models that a kind of multimodal model may have.
std::string texts_of(const Wrapper& of) {
  std::vector<std::string> texts;
  for (const Wrapper& wrapper : kWrappers) {
    if (wrapper.model_type == of.model_type) texts.emplace_back(wrapper.text_type);
  }
  return base::join(texts, " or ");
}

}  // namespace

Json language_config(const Json& config, const std::string& name) {
  if (!config.is_object()) throw InputError(text(name, ": a config.json holds an object"));
  if (!config.contains(kText)) return config;
  const Wrapper* const wrapper = wrapper_of(config);
  if (wrapper == nullptr) refuse_other(config, name);
  Reader(config, name).only("architectures", Json::array({std::string(wrapper->architecture)}));
  Json inner = base::require<Json>(config, kText, name);
  if (!inner.is_object()) Reader(config, name).refuse(kText, inner, "an object there");
  Reader text_reader(inner, text(name, ": ", kText));
  const Json* const type = text_reader.find("model_type");
  if (type != nullptr && *type != Json(std::string(wrapper->text_type)))
    text_reader.refuse("model_type", *type, texts_of(*wrapper));
  inner["model_type"] = wrapper->family;
  inner.erase("architectures");
  if (config.contains(kTied) && !config.at(kTied).is_null()) inner[kTied] = config.at(kTied);
  if (wrapper->normalised) inner["norm_topk_prob"] = true;
  drop_sections(inner);
  return inner;
}

Json& language_part(Json& config) {
  return wrapper_of(config) != nullptr && config.at(kText).is_object() ? config.at(kText) : config;
}

}  // namespace sluice::model
