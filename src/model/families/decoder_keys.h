// The keys that config.json files of most decoders share. For families' readers.
#pragma once

#include <functional>
#include <string>

#include "model/families/reader.h"
#include "model/shape.h"

namespace sluice::model {

// What transformers' class takes where a key is absent, and what its files call keys otherwise than LLaMA's.
struct DecoderKeys {
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t heads = 0;     // 0: never absent
  int64_t vocab = 0;     // likewise
  int64_t head_dim = 0;  // 0: hidden ÷ heads
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double rotated = 1.0;  // below 1: positions turn only so much of a head, or what a key says
  bool tied = false;
  bool biases = false;         // the family reads attention_bias itself
  bool ropes_by_type = false;  // rope_parameters may have a dictionary for each type of layers
  const char* activation = "silu";
  const char* heads_key = "num_attention_heads";
  const char* kv_heads_key = "num_key_value_heads";
  const char* norm_eps_key = "rms_norm_eps";
  const char* ffn_key = "intermediate_size";  // "": there is no MLP
};
// Sizes, the norm's eps and rotary positions. A shape that has a latent or an MLP's width already keeps it.
void read_decoder(Reader& config, const DecoderKeys& keys, Shape& shape);

// The width of windows: `absent` where no key says it, none where it is null.
void read_window(Reader& config, int64_t absent, Shape& shape);
using OfLayer = std::function<bool(int64_t layer)>;
// Which layers are windowed: layer_types, or where it is absent `otherwise`. Types that are all as a shape's
// without types are left out.
void read_layer_types(Reader& config, Shape& shape, const OfLayer& otherwise);
// Windows that are off unless use_sliding_window says otherwise, whatever their width.
void read_optional_window(Reader& config, int64_t absent, Shape& shape, const OfLayer& otherwise);

// Leaves out types of layers that are all as a shape's without types.
void drop_usual_types(Shape& shape);

}  // namespace sluice::model
