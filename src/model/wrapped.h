// Language models inside multimodal ones: whose config.json says of the text model what a language model's
// own says of itself, in text_config. For the readers of config.json.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace sluice::model {

// A kind of multimodal models whose text is a language model that a family computes, as long as there are no
// images.
struct Wrapper {
  std::string_view model_type;    // "qwen3_vl"
  std::string_view architecture;  // "Qwen3VLForConditionalGeneration"
  // What text_config calls its model, and the model_type of the family that computes it; the former is also
  // what an absent model_type means.
  std::string_view text_type;
  std::string_view family;
  bool normalised = false;  // experts' weights add up to 1, without a key that says so
};
std::span<const Wrapper> wrappers();

// The entry of a multimodal model's config.json; null for a language model's own.
const Wrapper* wrapper_of(const base::Json& config);

// The config.json of the language model: the file itself, or what a multimodal model's says of its text, with
// the head tied or not as the whole model's is. InputError naming `name` for a multimodal model of another
// kind, with the ways out.
base::Json language_config(const base::Json& config, const std::string& name);

// Where a config.json says something of the language model: itself, or its text_config.
base::Json& language_part(base::Json& config);

}  // namespace sluice::model
