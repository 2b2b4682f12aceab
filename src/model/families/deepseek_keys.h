// Latent attention in a config.json. For families' readers.
#pragma once

#include "model/families/decoder_keys.h"

namespace sluice::model {

// Reads the decoder's keys and latent attention, whose queries and keys rotate in neighbouring pairs.
void read_latent(Reader& config, const DecoderKeys& keys, Outline& outline);

}  // namespace sluice::model
