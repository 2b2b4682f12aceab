#include "model/recurrent_config.h"

#include <cmath>

#include "base/json_fields.h"
#include "base/text.h"
#include "model/config_keys.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

using base::Json;

// By their names since transformers 5, and before.
bool is_recurrent_type(const Json& type) { return type == "linear_attention" || type == "mamba"; }
bool is_attention_type(const Json& type) { return type == "full_attention" || type == "attention"; }

// Of one row there would be none.
constexpr base::Range<int64_t> kConvolutions{2, kShapeRanges.convolution.most};

}  // namespace

void read_recurrent_types(const Json& config, int64_t pattern, const std::string& name, Shape& shape) {
  const bool listed = config.contains("layer_types") && !config.at("layer_types").is_null();
  const Json types = listed ? config.at("layer_types") : Json::array();
  if (listed && (!types.is_array() || static_cast<int64_t>(types.size()) != shape.layers)) {
    refuse(name, "layer_types", types,
           base::text("a list with a type for each of the ", shape.layers, " layers"));
  }
  if (shape.block_types.empty()) shape.block_types.resize(static_cast<size_t>(shape.layers));
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    bool& recurrent = shape.block_types[static_cast<size_t>(layer)].recurrent;
    recurrent = (layer + 1) % pattern != 0;
    if (!listed) continue;
    const Json& type = types.at(static_cast<size_t>(layer));
    if (!is_recurrent_type(type) && !is_attention_type(type))
      refuse(name, base::text("layer_types[", layer, "]"), type, "full_attention or linear_attention");
    recurrent = is_recurrent_type(type);
  }
}

void read_gated_delta(const Json& config, const std::string& name, const Recurrent& absent, Shape& shape) {
  const ShapeRanges& ranges = kShapeRanges;
  const auto size = [&](const char* key, base::Range<int64_t> range, int64_t otherwise) {
    return size_or(otherwise, config, key, range, name);
  };
  Recurrent& own = shape.recurrent = absent;
  own.key_heads = size("linear_num_key_heads", ranges.heads, absent.key_heads);
  own.value_heads = size("linear_num_value_heads", ranges.heads, absent.value_heads);
  own.key_width = size("linear_key_head_dim", ranges.recurrent_width, absent.key_width);
  own.value_width = size("linear_value_head_dim", ranges.recurrent_width, absent.value_width);
  own.convolution = size("linear_conv_kernel_dim", kConvolutions, 4);
}

void write_gated_delta(const Shape& shape, Json& config) {
  const Recurrent& own = shape.recurrent;
  config["linear_num_key_heads"] = own.key_heads;
  config["linear_num_value_heads"] = own.value_heads;
  config["linear_key_head_dim"] = own.key_width;
  config["linear_value_head_dim"] = own.value_width;
  config["linear_conv_kernel_dim"] = own.convolution;
  write_recurrent_types(shape, config);
}

void read_mamba2(const Json& config, const Mamba2Keys& keys, const std::string& name, Shape& shape) {
  const ShapeRanges& ranges = kShapeRanges;
  require_off(config, keys.bias, name);
  Recurrent& own = shape.recurrent;
  own.recurrence = Recurrence::kMamba2;
  own.key_heads = size_or(keys.absent_groups, config, keys.groups, ranges.heads, name);
  own.value_heads = size_or(keys.absent_heads, config, keys.heads, ranges.heads, name);
  own.key_width = size_or(keys.absent_state, config, keys.state, ranges.recurrent_width, name);
  own.convolution = size_or(4, config, keys.convolution, kConvolutions, name);
  own.convolution_bias = base::get_or<bool>(config, keys.convolution_bias, true, name);
  own.norm_eps = base::get_or<double>(config, keys.eps, keys.absent_eps, name);
  const int64_t hidden = base::require_in(config, "hidden_size", ranges.hidden, name);
  const int64_t width = size_or(2, config, keys.expand, {1, 64}, name) * hidden;
  if (width % own.value_heads != 0) {
    refuse(name, keys.heads, own.value_heads,
           base::text("heads that divide ", keys.expand, " times hidden_size, ", width));
  }
  own.value_width = width / own.value_heads;
  if (config.contains(keys.head_width) && config.at(keys.head_width) != "auto")
    require_only(config, keys.head_width, own.value_width, name);
  // Steps have no bounds but those that softplus gives: JSON has no infinity, so files write it otherwise.
  if (!config.contains("time_step_limit") || config.at("time_step_limit").is_null()) return;
  const Json& limit = config.at("time_step_limit");
  const bool unbounded = limit.is_array() && limit.size() == 2 && limit[0] == 0.0 && !limit[1].is_number();
  if (!unbounded) refuse(name, "time_step_limit", limit, "steps without bounds, [0, Infinity]");
}

void write_mamba2(const Shape& shape, const Mamba2Keys& keys, Json& config) {
  const Recurrent& own = shape.recurrent;
  config[keys.groups] = own.key_heads;
  config[keys.heads] = own.value_heads;
  config[keys.state] = own.key_width;
  config[keys.head_width] = own.value_width;
  config[keys.convolution] = own.convolution;
  config[keys.expand] = own.values() / shape.hidden;
  config[keys.convolution_bias] = own.convolution_bias;
  config[keys.bias] = false;
}

// Of transformers' class in fla: decays are sixteenths of logarithms of sigmoids, made from sixteen numbers.
void read_gla(const Json& config, const std::string& name, Shape& shape) {
  const ShapeRanges& ranges = kShapeRanges;
  const int64_t hidden = base::require_in(config, "hidden_size", ranges.hidden, name);
  const int64_t heads = base::require_in(config, "num_heads", ranges.heads, name);
  if (config.contains("num_kv_heads") && !config.at("num_kv_heads").is_null())
    require_only(config, "num_kv_heads", heads, name);
  // A head's part of so much of the rows' width.
  const auto width = [&](const char* key, double absent) {
    const double factor =
        config.contains(key) ? base::require_in(config, key, base::Range<double>{1e-3, 64.0}, name) : absent;
    const auto all = std::llround(factor * static_cast<double>(hidden));
    if (all < heads || all % heads != 0 ||
        std::abs(static_cast<double>(all) - factor * static_cast<double>(hidden)) > 1e-6)
      refuse(name, key, factor,
             base::text("so much of hidden_size ", hidden, " that num_heads ", heads, " divide it"));
    return all / heads;
  };
  shape.recurrent = {.recurrence = Recurrence::kGla,
                     .key_heads = heads,
                     .value_heads = heads,
                     .key_width = width("expand_k", 0.5),
                     .value_width = width("expand_v", 1.0),
                     .convolution = 1,
                     .decay_rank = 16,
                     .norm_eps = base::get_or<double>(config, "norm_eps", 1e-6, name)};
  if (config.contains("intermediate_size") && !config.at("intermediate_size").is_null()) return;
  // Two thirds of so many times the rows' width, up to a multiple of 256.
  const int64_t ratio = size_or(4, config, "hidden_ratio", {1, 1024}, name);
  shape.ffn_hidden = (hidden * ratio * 2 / 3 + 255) / 256 * 256;
}

void write_gla(const Shape& shape, Json& config) {
  const Recurrent& own = shape.recurrent;
  const auto of_hidden = [&](int64_t width) {
    return static_cast<double>(own.key_heads * width) / static_cast<double>(shape.hidden);
  };
  config["expand_k"] = of_hidden(own.key_width);
  config["expand_v"] = of_hidden(own.value_width);
  config["use_short_conv"] = false;
}

void write_recurrent_types(const Shape& shape, Json& config) {
  Json types = Json::array();
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    types.push_back(shape.block_type(layer).recurrent ? "linear_attention" : "full_attention");
  config["layer_types"] = types;
}

}  // namespace sluice::model
