#include "model/families/decoder_keys.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/families/rope_keys.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

using base::Json;
using base::text;

int64_t kv_heads_of(Reader& config, const DecoderKeys& keys, const Outline& outline) {
  // Null means as many KV heads as heads.
  const bool absent = !config.says(keys.kv_heads_key);
  const int64_t otherwise = absent && keys.kv_heads > 0 ? keys.kv_heads : outline.heads;
  return base::get_or<int64_t>(config.json(), keys.kv_heads_key, otherwise, config.name());
}

int64_t head_dim_of(Reader& config, const DecoderKeys& keys, const Outline& outline) {
  const int64_t latent = outline.latent.unrotated + outline.latent.rotated;
  if (latent > 0) return latent;
  if (config.find("head_dim") != nullptr) return config.count("head_dim", kModelRanges.head_dim);
  if (!config.says("head_dim") && keys.head_dim > 0) return keys.head_dim;
  if (outline.hidden % outline.heads != 0 && !keys.floors_heads) {
    throw base::InputError(text(config.name(), ": num_attention_heads ", outline.heads,
                                " does not divide hidden_size ", outline.hidden,
                                " and head_dim is missing: add it"));
  }
  return outline.hidden / outline.heads;
}

int64_t ffn_of(Reader& config, const DecoderKeys& keys) {
  if (*keys.ffn_key == '\0') return 0;
  // Files may lack the width of an MLP if all layers have experts.
  const bool has_mlp = config.says(keys.ffn_key) || !config.json().contains("moe_intermediate_size");
  return config.count(has_mlp ? keys.ffn_key : "moe_intermediate_size", kModelRanges.ffn_hidden);
}

// Sets the rotated part of a head from partial_rotary_factor and returns the file without the key. The key is
// in the file or among its rotary parameters. mrope_section is ignored: each token of text has only one
// position.
Json take_rotated(const Reader& reader, double absent, Outline& outline) {
  constexpr const char* kKey = "partial_rotary_factor";
  Json config = reader.json();
  double factor = absent;
  const auto take = [&](Json& from) {
    for (const char* type : {"rope_type", "type"}) {
      if (from.contains(type) && from.at(type) == "proportional")
        reader.refuse(type, from.at(type), "other types where a key says how much of a head is rotated");
    }
    if (from.contains(kKey) && !from.at(kKey).is_null())
      factor = base::require_in(from, kKey, base::Range<double>{0.01, 1.0}, reader.name());
    for (const char* key : {kKey, "mrope_section", "mrope_interleaved"}) from.erase(key);
  };
  take(config);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.contains(key) && config.at(key).is_object()) take(config.at(key));
  }
  outline.rotated = static_cast<int64_t>(static_cast<double>(outline.head_dim) * factor);
  if (outline.rotated == outline.head_dim) outline.rotated = 0;
  return config;
}

// An odd width w has as many pairs as w + 1, with angles θ^(-2i ÷ w). The width w + 1 has the same angles
// with θ^((w + 1) ÷ w).
void round_rotated_up(const std::string& name, Outline& outline) {
  if (outline.rotated % 2 == 0) return;
  const RopeScaling scaling = outline.rope.scaling;
  if (scaling == RopeScaling::kYarn || scaling == RopeScaling::kLongRope) {
    throw base::InputError(text(name, ": positions turn ", outline.rotated, " of a head's ", outline.head_dim,
                                " dimensions; under yarn and longrope Sluice computes only even numbers"));
  }
  const auto width = static_cast<double>(outline.rotated);
  outline.rope.theta = std::pow(outline.rope.theta, (width + 1) / width);
  ++outline.rotated;
}

void refuse_other_parts(Reader& config, const DecoderKeys& keys) {
  if (!keys.biases) config.off("attention_bias");
  if (!keys.mlp_biases) config.off("mlp_bias");
  config.only("pretraining_tp", 1);
  config.only("hidden_act", keys.activation);
  if (keys.drops_out) {
    config.pass({"attention_dropout", "residual_dropout"});
  } else {
    config.only("attention_dropout", 0.0);
  }
  if (keys.rotated == 1.0 && !keys.turns_part) config.only("partial_rotary_factor", 1.0);
  // LLaMA's names, which a family may replace, and the keys from which rotary positions are read.
  config.pass({"model_type", "intermediate_size", "head_dim", "num_attention_heads", "num_key_value_heads",
               "rms_norm_eps", "max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters",
               "partial_rotary_factor"});
}

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

}  // namespace

void read_decoder(Reader& config, const DecoderKeys& keys, Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  refuse_other_parts(config, keys);
  const auto count = [&](const char* key, const base::Range<int64_t>& range, int64_t absent) {
    return absent > 0 ? config.count_or(absent, key, range) : config.count(key, range);
  };
  outline.layers = keys.layers > 0 ? keys.layers : config.count("num_hidden_layers", ranges.layers);
  outline.hidden = config.count("hidden_size", ranges.hidden);
  outline.heads = count(keys.heads_key, ranges.heads, keys.heads);
  outline.kv_heads = kv_heads_of(config, keys, outline);
  outline.head_dim = head_dim_of(config, keys, outline);
  if (outline.ffn_hidden == 0) outline.ffn_hidden = ffn_of(config, keys);
  outline.vocab = count("vocab_size", ranges.vocab, keys.vocab);
  outline.tie_embeddings =
      keys.tied ? !config.lacks("tie_word_embeddings") : config.has("tie_word_embeddings");
  config.says(keys.norm_eps_key);
  outline.norm_eps = base::get_or<double>(config.json(), keys.norm_eps_key, keys.norm_eps, config.name());
  const bool turns_part = keys.rotated < 1.0 || keys.turns_part;
  const Json rope = keys.own_rope != nullptr ? keys.own_rope(config, outline)
                    : turns_part             ? take_rotated(config, keys.rotated, outline)
                                             : config.json();
  outline.rope = rope_from_hugging_face(rope, keys.rope_theta, keys.ropes_by_type, config.name());
  round_rotated_up(config.name(), outline);
}

void read_window(Reader& config, int64_t absent, Outline& outline) {
  if (!config.says("sliding_window")) {
    outline.window = absent;
  } else if (config.find("sliding_window") != nullptr) {
    outline.window = config.count("sliding_window", kModelRanges.window);
  }
}

void read_named_layers(Reader& config, const char* key, std::string_view yes, std::string_view no,
                       const Outline& outline, const std::function<void(int64_t layer, bool yes)>& say) {
  const Json* const types = config.find(key);
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != outline.layers)
    config.refuse(key, *types, text("a list with a type for each of the ", outline.layers, " layers"));
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    const Json& type = types->at(static_cast<size_t>(layer));
    if (type != yes && type != no) config.refuse(text(key, "[", layer, "]"), type, text(no, " or ", yes));
    say(layer, type == yes);
  }
}

void read_layer_types(Reader& config, Outline& outline, const OfLayer& otherwise) {
  spread_types(outline);
  const auto windowed = [&](int64_t layer) -> bool& {
    return outline.block_types[static_cast<size_t>(layer)].windowed;
  };
  for (int64_t layer = 0; layer < outline.layers; ++layer) windowed(layer) = otherwise(layer);
  read_named_layers(config, "layer_types", kSliding, kFull, outline,
                    [&](int64_t layer, bool sliding) { windowed(layer) = sliding; });
  if (std::ranges::none_of(outline.block_types, &BlockType::windowed)) outline.window = 0;
  drop_usual_types(outline);
}

void read_optional_window(Reader& config, int64_t absent, Outline& outline, const OfLayer& otherwise) {
  config.pass({"sliding_window"});
  if (config.has("use_sliding_window")) read_window(config, absent, outline);
  read_layer_types(config, outline, [&](int64_t layer) { return outline.window > 0 && otherwise(layer); });
}

void read_ropes_by_type(Reader& config, double absent_window_theta, Outline& outline) {
  config.only("rope_local_base_freq", nullptr);
  const Json* const both = config.find("rope_parameters");
  if (both != nullptr && both->is_object() && !both->contains(kFull))
    config.refuse("rope_parameters", *both,
                  text("a dictionary for ", kFull, " and one for ", kSliding, " there"));
  // rope_theta of old files is for both kinds of layers, so it is also the windowed layers' default.
  const double theta =
      both == nullptr && config.find("rope_theta") != nullptr ? outline.rope.theta : absent_window_theta;
  const std::optional<Rope> own = window_rope_from_hugging_face(config, theta);
  if (outline.window > 0 && own && *own != outline.rope) outline.window_rope = own;
}

void turn_windows_alone(Outline& outline) {
  spread_types(outline);
  for (BlockType& type : outline.block_types) type.rotates = type.windowed;
  drop_usual_types(outline);
}

Json with_own_rope(const Reader& config, const std::function<void(Json& rope)>& change) {
  Json changed = config.json();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (changed.contains(key) && changed.at(key).is_object()) change(changed.at(key));
  }
  return changed;
}

Json with_usual_ropes(const Reader& config, double proportion) {
  Json changed = config.json();
  Json& both = changed["rope_parameters"];
  if (both.is_null()) both = Json::object();
  if (both.is_object() && !both.contains(kFull))
    both[kFull] = {{"rope_type", "proportional"}, {"partial_rotary_factor", proportion}, {"rope_theta", 1e6}};
  return changed;
}

void spread_types(Outline& outline) {
  if (outline.block_types.empty())
    outline.block_types.assign(static_cast<size_t>(outline.layers), outline.block_type(0));
}

void drop_usual_types(Outline& outline) {
  Outline usual = outline;
  usual.block_types.clear();
  if (std::ranges::count(outline.block_types, usual.block_type(0)) == outline.layers)
    outline.block_types.clear();
}

// no_rope_layers has a 1 for each layer with rotary positions. Without it one layer per interval has none.
void read_rotations(Reader& config, Outline& outline) {
  const Json* list = config.find("no_rope_layers");
  if (list != nullptr && list->is_array() && list->empty()) list = nullptr;
  const int64_t interval = config.count_or(4, "no_rope_layer_interval", kModelRanges.layers);
  const bool fits =
      list == nullptr || (list->is_array() && static_cast<int64_t>(list->size()) >= outline.layers);
  if (!fits) config.refuse("no_rope_layers", *list, "a list with 0 or 1 for each layer");
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    const Json rotates =
        list == nullptr ? Json((layer + 1) % interval != 0 ? 1 : 0) : list->at(static_cast<size_t>(layer));
    if (rotates != 0 && rotates != 1) config.refuse("no_rope_layers", rotates, "0 and 1 there");
    outline.block_types.push_back({.rotates = rotates == 1});
  }
}

}  // namespace sluice::model
