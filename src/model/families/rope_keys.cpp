// Rotary positions in a config.json, under transformers' old keys and its new one.
#include "model/families/rope_keys.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"
#include "model/families/reader.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

using base::get_or;
using base::InputError;
using base::Json;
using base::text;

// The value rope[key], or `fallback` if absent or null.
double factor_or(double fallback, const Json& rope, const std::string& key, const std::string& name) {
  if (!rope.contains(key) || rope.at(key).is_null()) return fallback;
  return base::require_in(rope, key, kModelRanges.rope_factor, name);
}

double theta_or(double fallback, const Json& rope, const std::string& name) {
  if (!rope.contains("rope_theta") || rope.at("rope_theta").is_null()) return fallback;
  return base::require_in(rope, "rope_theta", kModelRanges.rope_theta, name);
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
      {"proportional", RopeScaling::kProportional, {"factor"}},
      {"llama3",
       RopeScaling::kLlama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn",
       RopeScaling::kYarn,
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
        "truncate", "mscale", "mscale_all_dim"}},
      {"longrope",
       RopeScaling::kLongRope,
       {"factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"}},
  };
  return types;
}

const RopeType& rope_type_of(const Json& rope, const std::string& name) {
  const Json value = rope.contains("rope_type") ? rope.at("rope_type")
                     : rope.contains("type")    ? rope.at("type")
                                                : Json("default");
  for (const RopeType& type : rope_types()) {
    if (value == Json(std::string(type.name))) return type;
    if (type.scaling == RopeScaling::kLongRope && value == "su") return type;  // the name it had at first
  }
  Reader(rope, name).refuse("rope_type", value, "default, linear, llama3, yarn and longrope");
}

void refuse_unknown_rope_keys(const Json& rope, const RopeType& type, const std::string& name) {
  if (type.scaling != RopeScaling::kProportional) Reader(rope, name).only("partial_rotary_factor", 1.0);
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
  if (!config.at(key).is_object())
    Reader(config, name).refuse(key, config.at(key), "a dictionary or null here");
  return config.at(key);
}

constexpr const char* kFullLayers = "full_attention";
constexpr const char* kSlidingLayers = "sliding_attention";

// Since transformers 5 each type of layers may have a dictionary of its own.
bool by_layer_type(const Json& dictionary) {
  return dictionary.contains(kFullLayers) || dictionary.contains(kSlidingLayers);
}

std::vector<double> factors(const Json& rope, const std::string& key, const std::string& name) {
  const auto list = base::require<Json>(rope, key, name);
  if (!list.is_array()) Reader(rope, name).refuse(key, list, "a list of factors there");
  std::vector<double> factors;
  for (const Json& factor : list) {
    if (!factor.is_number()) Reader(rope, name).refuse(key, factor, "numbers there");
    factors.push_back(factor.get<double>());
  }
  return factors;
}

// Phi-3's factor follows from numbers of positions, in keys beside the dictionary, which come first. Its
// factor on queries and keys is kept as the resulting value.
void read_longrope(const Json& config, const Json& dictionary, const std::string& name, Rope& rope) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const auto positions = get_or<int64_t>(config, "max_position_embeddings", 2048, name);
  const bool says = config.contains(kOriginal) && !config.at(kOriginal).is_null();
  if (says) rope.original_max_position_embeddings = base::require<int64_t>(config, kOriginal, name);
  base::require_in_range(text(name, ": ", kOriginal), rope.original_max_position_embeddings,
                         kModelRanges.max_positions);
  const double stretched =
      static_cast<double>(positions) / static_cast<double>(rope.original_max_position_embeddings);
  rope.factor = factor_or(stretched, dictionary, "factor", name);
  const double scale =
      rope.factor <= 1
          ? 1.0
          : std::sqrt(1 + std::log(rope.factor) /
                              std::log(static_cast<double>(rope.original_max_position_embeddings)));
  rope.attention_factor = factor_or(scale, dictionary, "attention_factor", name);
  rope.factor = 1.0;
  rope.short_factors = factors(dictionary, "short_factor", name);
  rope.long_factors = factors(dictionary, "long_factor", name);
}

Rope rope_of(const Json& dictionary, const Json& config, double absent_theta, const std::string& where) {
  const RopeType& type = rope_type_of(dictionary, where);
  refuse_unknown_rope_keys(dictionary, type, where);
  Rope rope{.theta = theta_or(absent_theta, dictionary, where), .scaling = type.scaling};
  const auto factor = [&](const char* key) {
    return base::require_in(dictionary, key, kModelRanges.rope_factor, where);
  };
  if (rope.scaling == RopeScaling::kLinear) rope.factor = factor("factor");
  if (rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kLinear) return rope;
  if (rope.scaling == RopeScaling::kProportional) {
    rope.factor = factor_or(1.0, dictionary, "factor", where);
    if (dictionary.contains("partial_rotary_factor") && !dictionary.at("partial_rotary_factor").is_null())
      rope.proportion =
          base::require_in(dictionary, "partial_rotary_factor", base::Range<double>{0.01, 1.0}, where);
    return rope;
  }

  const auto max_positions = get_or<int64_t>(config, "max_position_embeddings", 2048, where);
  rope.original_max_position_embeddings =
      get_or<int64_t>(dictionary, "original_max_position_embeddings", max_positions, where);
  if (rope.scaling == RopeScaling::kLongRope) {
    read_longrope(config, dictionary, where, rope);
    return rope;
  }
  rope.factor = factor("factor");
  if (rope.scaling == RopeScaling::kLlama3) {
    rope.low_freq_factor = factor("low_freq_factor");
    rope.high_freq_factor = factor("high_freq_factor");
  } else {
    rope.beta_fast = factor_or(rope.beta_fast, dictionary, "beta_fast", where);
    rope.beta_slow = factor_or(rope.beta_slow, dictionary, "beta_slow", where);
    rope.attention_factor = factor_or(0.0, dictionary, "attention_factor", where);
    const double one = factor_or(0.0, dictionary, "mscale", where);
    const double other = rope.mscale_all_dim = factor_or(0.0, dictionary, "mscale_all_dim", where);
    const auto stretched = [&](double by) {
      return rope.factor <= 1 ? 1.0 : 0.1 * by * std::log(rope.factor) + 1;
    };
    if (rope.attention_factor == 0 && one > 0 && other > 0)
      rope.attention_factor = stretched(one) / stretched(other);
    rope.truncate = get_or<bool>(dictionary, "truncate", true, where);
  }
  return rope;
}

}  // namespace

Rope rope_from_hugging_face(const Json& config, double absent_theta, bool by_type, const std::string& name) {
  std::string key;
  Json dictionary = rope_dictionary(config, name, key);
  std::string where = text(name, ": ", key);
  if (by_type && by_layer_type(dictionary)) {
    dictionary = base::require<Json>(dictionary, kFullLayers, where);
    where += text(": ", kFullLayers);
  }
  return rope_of(dictionary, config, theta_or(absent_theta, config, name), where);
}

std::optional<Rope> window_rope_from_hugging_face(Reader& reader, double absent_theta) {
  reader.pass({"rope_local_base_freq"});
  const Json& config = reader.json();
  const std::string& name = reader.name();
  std::string key;
  const Json dictionary = rope_dictionary(config, name, key);
  const bool local = config.contains("rope_local_base_freq") && !config.at("rope_local_base_freq").is_null();
  const double theta =
      local ? base::require_in(config, "rope_local_base_freq", kModelRanges.rope_theta, name) : absent_theta;
  if (by_layer_type(dictionary)) {
    const std::string where = text(name, ": ", key);
    return rope_of(base::require<Json>(dictionary, kSlidingLayers, where), config, theta,
                   text(where, ": ", kSlidingLayers));
  }
  if (theta == 0) return std::nullopt;
  return Rope{.theta = theta};
}

Json rope_to_hugging_face(const Rope& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone: return nullptr;
    case RopeScaling::kProportional:
      return {
          {"rope_type", "proportional"}, {"partial_rotary_factor", rope.proportion}, {"factor", rope.factor}};
    case RopeScaling::kLinear: return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", rope.high_freq_factor},
              {"original_max_position_embeddings", rope.original_max_position_embeddings}};
    case RopeScaling::kYarn:
    case RopeScaling::kLongRope: break;
  }
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  Json stretched = {{"rope_type", yarn ? "yarn" : "longrope"},
                    {"original_max_position_embeddings", rope.original_max_position_embeddings}};
  if (yarn) {
    stretched.update({{"factor", rope.factor}, {"beta_fast", rope.beta_fast}, {"beta_slow", rope.beta_slow}});
  }
  if (rope.mscale_all_dim > 0) stretched["mscale_all_dim"] = rope.mscale_all_dim;
  if (!rope.truncate) stretched["truncate"] = false;
  if (rope.attention_factor > 0) stretched["attention_factor"] = rope.attention_factor;
  if (!yarn) stretched.update({{"short_factor", rope.short_factors}, {"long_factor", rope.long_factors}});
  return stretched;
}

}  // namespace sluice::model
