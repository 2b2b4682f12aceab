// Language models inside multimodal ones. Their config.json describes the language model in text_config, with
// a language model's usual keys. For readers of config.json.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace sluice::model {

// A kind of multimodal model whose language model is computed by a family, as long as there are no
// images.
struct Wrapper {
  std::string_view model_type;    // "qwen3_vl"
  std::string_view architecture;  // "Qwen3VLForConditionalGeneration"
  // The model_type in text_config, also meant if the key is absent, and the model_type of the family that
  // computes the language model.
  std::string_view text_type;
  std::string_view family;
  bool normalised = false;  // experts' weights sum to 1, without a key for it
};
std::span<const Wrapper> wrappers();

// The entry of a multimodal model's config.json; null for a language model.
const Wrapper* wrapper_of(const base::Json& config);

// The config.json of the language model: the file itself, or a multimodal model's text_config with the whole
// model's tied or untied head. InputError naming `name` for a multimodal model of another kind, with ways
// out.
base::Json language_config(const base::Json& config, const std::string& name);

// The part of a config.json that describes the language model: all of it, or its text_config.
base::Json& language_part(base::Json& config);

}  // namespace sluice::model
