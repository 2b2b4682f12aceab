#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {
void read_smollm3(Reader& config, Outline& outline) {
  read_decoder(config, {.kv_heads = 4, .rope_theta = 2e6, .tied = true}, outline);
  config.pass({"max_window_layers"});
  read_rotations(config, outline);
  read_optional_window(config, 0, outline, [&](int64_t layer) { return !outline.block_type(layer).rotates; });
}

}  // namespace sluice::model
