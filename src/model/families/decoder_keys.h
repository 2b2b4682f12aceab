// The keys that config.json files of most decoders share. For families' readers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

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
  bool turns_part = false;     // a key may say that positions turn a part of a head, though none is usual
  bool floors_heads = false;   // a head without a width of its own has hidden ÷ heads rounded down
  bool drops_out = false;      // training drops out as much as the file says elsewhere, and nothing here
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

// rope_parameters with a dictionary for layers with a window, and one for all others; without them rope_theta
// and rope_scaling, which is of layers without a window alone. REQUIRES: the shape's window and its layers'
// types were read.
void read_ropes_by_type(Reader& config, double absent_window_theta, Shape& shape);

using OfLayer = std::function<bool(int64_t layer)>;
// A list with one of two names for each layer, `yes` for those that the function says it of; where there is
// none nothing is said.
void read_named_layers(Reader& config, const char* key, std::string_view yes, std::string_view no,
                       const Shape& shape, const std::function<void(int64_t layer, bool yes)>& say);

// The width of windows: `absent` where no key says it, none where it is null.
void read_window(Reader& config, int64_t absent, Shape& shape);
// Which layers are windowed: layer_types, or where it is absent `otherwise`. Types that are all as a shape's
// without types are left out.
void read_layer_types(Reader& config, Shape& shape, const OfLayer& otherwise);
// Windows that are off unless use_sliding_window says otherwise, whatever their width.
void read_optional_window(Reader& config, int64_t absent, Shape& shape, const OfLayer& otherwise);

// Gives each layer a type of its own to change: what it was.
void spread_types(Shape& shape);
// Leaves out types of layers that are all as a shape's without types.
void drop_usual_types(Shape& shape);

}  // namespace sluice::model
