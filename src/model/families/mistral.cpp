#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {

void read_mistral(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 8}, shape);
  read_window(config, 4096, shape);
}

}  // namespace sluice::model
