// Rotary positions in a config.json, under transformers' old keys and its new one.
#include "model/hugging_face_rope.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/config_keys.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

using base::get_or;
using base::InputError;
using base::Json;
using base::text;

// rope[key], or `fallback` when absent or null.
double factor_or(double fallback, const Json& rope, const std::string& key, const std::string& name) {
  if (!rope.contains(key) || rope.at(key).is_null()) return fallback;
  return base::require_in(rope, key, kShapeRanges.rope_factor, name);
}

double theta_or(double fallback, const Json& rope, const std::string& name) {
  if (!rope.contains("rope_theta") || rope.at("rope_theta").is_null()) return fallback;
  return base::require_in(rope, "rope_theta", kShapeRanges.rope_theta, name);
}

struct RopeType {
  std::string_view name;
  RopeScaling scaling;
  std::vector<std::string_view> keys;  // beside rope_type, type, rope_theta and partial_rotary_factor
};

const std::vector<RopeType>& rope_types() {
  static const std::vector<RopeType> types = {
      {"default", RopeScaling::kNone, {}},
      {"linear", RopeScaling::kLinear, {"factor"}},
      {"llama3",
       RopeScaling::kLlama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn",
       RopeScaling::kYarn,
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
        "truncate"}},
  };
  return types;
}

const RopeType& rope_type_of(const Json& rope, const std::string& name) {
  const Json value = rope.contains("rope_type") ? rope.at("rope_type")
                     : rope.contains("type")    ? rope.at("type")
                                                : Json("default");
  for (const RopeType& type : rope_types()) {
    if (value == Json(std::string(type.name))) return type;
  }
  refuse(name, "rope_type", value, "default, linear, llama3 and yarn");
}

void refuse_unknown_rope_keys(const Json& rope, const RopeType& type, const std::string& name) {
  require_only(rope, "partial_rotary_factor", 1.0, name);
  require_only(rope, "truncate", true, name);
  for (const auto& [key, value] : rope.items()) {
    const bool common =
        key == "rope_type" || key == "type" || key == "rope_theta" || key == "partial_rotary_factor";
    const bool known = std::find(type.keys.begin(), type.keys.end(), key) != type.keys.end();
    if (common || known || value.is_null()) continue;
    throw InputError(text(name, ": ", key, " is ", base::excerpt(value), " but rope_type ", type.name,
                          " has no such key in Sluice"));
  }
}

// The dictionary of rotary parameters under either of its names, or an empty one; `key` is the one found.
Json rope_dictionary(const Json& config, const std::string& name, std::string& key) {
  const bool has_old = config.contains("rope_scaling") && !config.at("rope_scaling").is_null();
  const bool has_new = config.contains("rope_parameters") && !config.at("rope_parameters").is_null();
  if (has_old && has_new && config.at("rope_scaling") != config.at("rope_parameters")) {
    throw InputError(text(name, ": rope_scaling and rope_parameters disagree: remove one"));
  }
  key = has_new ? "rope_parameters" : "rope_scaling";
  if (!has_old && !has_new) return Json::object();
  if (!config.at(key).is_object()) refuse(name, key, config.at(key), "a dictionary or null here");
  return config.at(key);
}

}  // namespace

Rope rope_from_hugging_face(const Json& config, double absent_theta, const std::string& name) {
  std::string key;
  const Json dictionary = rope_dictionary(config, name, key);
  const std::string where = text(name, ": ", key);
  const RopeType& type = rope_type_of(dictionary, where);
  refuse_unknown_rope_keys(dictionary, type, where);

  Rope rope{.theta = theta_or(absent_theta, config, name), .scaling = type.scaling};
  rope.theta = theta_or(rope.theta, dictionary, where);
  if (rope.scaling == RopeScaling::kNone) return rope;
  const auto factor = [&](const char* factor_key) {
    return base::require_in(dictionary, factor_key, kShapeRanges.rope_factor, where);
  };
  rope.factor = factor("factor");
  if (rope.scaling == RopeScaling::kLinear) return rope;

  const auto max_positions = get_or<int64_t>(config, "max_position_embeddings", 2048, name);
  rope.original_max_position_embeddings =
      get_or<int64_t>(dictionary, "original_max_position_embeddings", max_positions, where);
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = factor("low_freq_factor");
    rope.high_freq_factor = factor("high_freq_factor");
  } else {
    rope.beta_fast = factor_or(rope.beta_fast, dictionary, "beta_fast", where);
    rope.beta_slow = factor_or(rope.beta_slow, dictionary, "beta_slow", where);
    rope.attention_factor = factor_or(0.0, dictionary, "attention_factor", where);
  }
  return rope;
}

Json rope_to_hugging_face(const Rope& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone: return nullptr;
    case RopeScaling::kLinear: return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings}};
    case RopeScaling::kYarn: break;
  }
  Json yarn = {{"rope_type", "yarn"},
               {"factor", rope.factor},
               {"original_max_position_embeddings", rope.original_max_position_embeddings},
               {"beta_fast", rope.beta_fast},
               {"beta_slow", rope.beta_slow}};
  if (rope.attention_factor > 0) yarn["attention_factor"] = rope.attention_factor;
  return yarn;
}

}  // namespace sluice::model
