// The number of positions in a config.json, and the rotary values that depend on it.
#include "base/error.h"
#include "base/json.h"
#include "model/hugging_face.h"
#include "model/outline.h"
#include "model/wrapped.h"

namespace sluice::model {
namespace {

using base::Json;

constexpr const char* kPositions = "max_position_embeddings";
constexpr const char* kOriginal = "original_max_position_embeddings";

bool says(const Json& config, const char* key) { return config.contains(key) && !config.at(key).is_null(); }

// Writes out the rotary parameters that would otherwise follow from the number of positions.
void pin(Json& dictionary, const Json& config, const Rope& rope) {
  if (!says(dictionary, kOriginal) && !says(config, kOriginal))
    dictionary[kOriginal] = rope.original_max_position_embeddings;
  const bool stretched = rope.scaling == RopeScaling::kLongRope && !says(dictionary, "factor");
  if (stretched && !says(dictionary, "attention_factor"))
    dictionary["attention_factor"] = rope.attention_factor;
}

void pin_all(Json& config, const Outline& outline) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!says(config, key) || !config.at(key).is_object()) continue;
    Json& dictionary = config.at(key);
    const auto of = [&](const char* type) {
      return says(dictionary, type) && dictionary.at(type).is_object();
    };
    if (!of("full_attention")) {
      pin(dictionary, config, outline.rope);
      continue;
    }
    pin(dictionary.at("full_attention"), config, outline.rope);
    if (of("sliding_attention"))
      pin(dictionary.at("sliding_attention"), config,
          outline.window_rope ? *outline.window_rope : outline.rope);
  }
}

bool is_of(const Json& config, const Outline& outline) {
  try {
    return outline_from_hugging_face(config, "config.json") == outline;
  } catch (const base::InputError&) {
    return false;
  }
}

}  // namespace

bool set_positions(Json& config, const Model& model, int64_t positions) {
  const Outline& outline = model.outline();
  Json changed = config;
  language_part(changed)[kPositions] = positions;
  if (!is_of(changed, outline)) pin_all(language_part(changed), outline);
  if (!is_of(changed, outline)) return false;
  config = std::move(changed);
  return true;
}

}  // namespace sluice::model
