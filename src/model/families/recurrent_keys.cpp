#include "model/families/recurrent_keys.h"

#include "base/text.h"
#include "model/model_ranges.h"

namespace sluice::model {
namespace {

using base::Json;

// Names of layer types since transformers 5, and before.
bool is_recurrent_type(const Json& type) { return type == "linear_attention" || type == "mamba"; }
bool is_attention_type(const Json& type) { return type == "full_attention" || type == "attention"; }

// A convolution over one row would have no effect.
constexpr base::Range<int64_t> kConvolutions{2, kModelRanges.convolution.most};

// Only softplus bounds steps. JSON has no infinity, so files write the upper bound in different ways.
void refuse_step_limit(Reader& config) {
  const Json* const limit = config.find("time_step_limit");
  if (limit == nullptr) return;
  const bool unbounded =
      limit->is_array() && limit->size() == 2 && (*limit)[0] == 0.0 && !(*limit)[1].is_number();
  if (!unbounded) config.refuse("time_step_limit", *limit, "steps without bounds, [0, Infinity]");
}

int64_t expanded_width(Reader& config, const Mamba2Keys& keys, const Outline& outline) {
  const int64_t heads = outline.recurrent.value_heads;
  const int64_t width = config.count_or(2, keys.expand, {1, 64}) * outline.hidden;
  if (width % heads != 0) {
    config.refuse(keys.heads, heads,
                  base::text("heads that divide ", keys.expand, " times hidden_size, ", width));
  }
  const Json* const head_width = config.find(keys.head_width);
  if (head_width != nullptr && *head_width != "auto") config.only(keys.head_width, width / heads);
  return width / heads;
}

}  // namespace

void read_recurrent_types(Reader& config, int64_t pattern, Outline& outline) {
  const Json* const types = config.find("layer_types");
  if (types != nullptr && (!types->is_array() || static_cast<int64_t>(types->size()) != outline.layers)) {
    config.refuse("layer_types", *types,
                  base::text("a list with a type for each of the ", outline.layers, " layers"));
  }
  outline.block_types.resize(static_cast<size_t>(outline.layers));
  for (int64_t layer = 0; layer < outline.layers; ++layer) {
    bool& recurrent = outline.block_types[static_cast<size_t>(layer)].recurrent;
    recurrent = (layer + 1) % pattern != 0;
    if (types == nullptr) continue;
    const Json& type = types->at(static_cast<size_t>(layer));
    if (!is_recurrent_type(type) && !is_attention_type(type))
      config.refuse(base::text("layer_types[", layer, "]"), type, "full_attention or linear_attention");
    recurrent = is_recurrent_type(type);
  }
}

void read_gated_delta(Reader& config, const Recurrent& absent, Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  Recurrent& own = outline.recurrent = absent;
  own.key_heads = config.count_or(absent.key_heads, "linear_num_key_heads", ranges.heads);
  own.value_heads = config.count_or(absent.value_heads, "linear_num_value_heads", ranges.heads);
  own.key_width = config.count_or(absent.key_width, "linear_key_head_dim", ranges.recurrent_width);
  own.value_width = config.count_or(absent.value_width, "linear_value_head_dim", ranges.recurrent_width);
  own.convolution = config.count_or(4, "linear_conv_kernel_dim", kConvolutions);
}

void read_mamba2(Reader& config, const Mamba2Keys& keys, Outline& outline) {
  const ModelRanges& ranges = kModelRanges;
  config.off(keys.bias);
  Recurrent& own = outline.recurrent;
  own.recurrence = Recurrence::kMamba2;
  own.key_heads = config.count_or(keys.absent_groups, keys.groups, ranges.heads);
  own.value_heads = config.count_or(keys.absent_heads, keys.heads, ranges.heads);
  own.key_width = config.count_or(keys.absent_state, keys.state, ranges.recurrent_width);
  own.convolution = config.count_or(4, keys.convolution, kConvolutions);
  own.convolution_bias = !config.lacks(keys.convolution_bias);
  own.norm_eps = base::get_or<double>(config.json(), keys.eps, keys.absent_eps, config.name());
  own.value_width = keys.expand == nullptr
                        ? config.count_or(keys.absent_width, keys.head_width, ranges.recurrent_width)
                        : expanded_width(config, keys, outline);
  refuse_step_limit(config);
}

}  // namespace sluice::model
