#include "model/families/decoder_keys.h"
#include "model/families/family.h"

namespace sluice::model {

void read_llama(Reader& config, Shape& shape) { read_decoder(config, {}, shape); }

void read_internlm3(Reader& config, Shape& shape) {
  config.off("qkv_bias");
  config.off("bias");
  read_decoder(config, {.kv_heads = 2, .head_dim = 128, .norm_eps = 1e-5}, shape);
}

// Published files have a dropout of 0.1, which is ignored: Sluice trains without dropout.
void read_seed_oss(Reader& config, Shape& shape) {
  read_decoder(config, {.kv_heads = 8, .head_dim = 128, .drops_out = true, .biases = true}, shape);
  shape.qkv_bias = !config.lacks("attention_bias");
  shape.out_bias = config.has("attention_out_bias");
}

}  // namespace sluice::model
