#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {

void read_llama(Reader& config, Shape& shape) { read_decoder(config, {}, shape); }

}  // namespace sluice::model
