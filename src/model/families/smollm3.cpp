#include "model/families/decoder_keys.h"
#include "model/families/family.h"
#include "model/shape_ranges.h"

namespace sluice::model {
namespace {

using base::Json;

// no_rope_layers has a 1 for each layer with rotary positions. Without it one layer per interval has none.
void read_rotations(Reader& config, Shape& shape) {
  const Json* const list = config.find("no_rope_layers");
  const int64_t interval = config.count_or(4, "no_rope_layer_interval", kShapeRanges.layers);
  const bool fits =
      list == nullptr || (list->is_array() && static_cast<int64_t>(list->size()) >= shape.layers);
  if (!fits) config.refuse("no_rope_layers", *list, "a list with 0 or 1 for each layer");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const Json rotates =
        list == nullptr ? Json((layer + 1) % interval != 0 ? 1 : 0) : list->at(static_cast<size_t>(layer));
    if (rotates != 0 && rotates != 1) config.refuse("no_rope_layers", rotates, "0 and 1 there");
    shape.block_types.push_back({.rotates = rotates == 1});
  }
}

}  // namespace

void read_smollm3(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 4, .rope_theta = 2e6, .tied = true}, shape);
  config.pass({"max_window_layers"});
  read_rotations(config, shape);
  read_optional_window(config, 0, shape, [&](int64_t layer) { return !shape.block_type(layer).rotates; });
}

}  // namespace sluice::model
