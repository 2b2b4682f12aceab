#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {
void read_smollm3(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 4, .rope_theta = 2e6, .tied = true}, shape);
  config.pass({"max_window_layers"});
  read_rotations(config, shape);
  read_optional_window(config, 0, shape, [&](int64_t layer) { return !shape.block_type(layer).rotates; });
}

}  // namespace sluice::model
