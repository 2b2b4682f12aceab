#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {

void read_mistral(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 8}, shape);
  read_window(config, 4096, shape);
}

void read_ministral(Reader& config, Shape& shape) {
  read_mistral(config, shape);
  read_layer_types(config, shape, [&](int64_t) { return shape.window > 0; });
}

}  // namespace sluice::model
