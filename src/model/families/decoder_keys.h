// The keys that config.json files of most decoders share. For families' readers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "model/families/reader.h"
#include "model/outline.h"

namespace sluice::model {

// A family's defaults for absent keys, as in transformers' class, and its key names that differ from LLaMA's.
struct DecoderKeys {
  int64_t layers = 0;    // 0: num_hidden_layers is required
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t heads = 0;     // 0: the key is required
  int64_t vocab = 0;     // likewise
  int64_t head_dim = 0;  // 0: hidden ÷ heads
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double rotated = 1.0;  // below 1: default of the rotated part of a head
  bool tied = false;
  bool turns_part = false;     // a key may limit the rotated part of a head, although all is the default
  bool floors_heads = false;   // a head's default width is hidden ÷ heads, rounded down
  bool drops_out = false;      // the file's dropout is ignored: Sluice trains without dropout
  bool biases = false;         // the family reads attention_bias itself
  bool mlp_biases = false;     // and mlp_bias
  bool ropes_by_type = false;  // rope_parameters may have a dictionary for each type of layers
  const char* activation = "silu";
  const char* heads_key = "num_attention_heads";
  const char* kv_heads_key = "num_key_value_heads";
  const char* norm_eps_key = "rms_norm_eps";
  const char* ffn_key = "intermediate_size";  // "": there is no MLP
  // Returns the file from which rotary positions are read, for families with rotary keys of their own. Sets
  // the outline's members that these keys determine.
  base::Json (*own_rope)(const Reader& config, Outline& outline) = nullptr;
};
// Reads sizes, the norm's eps and rotary positions. Keeps latent sizes and an MLP's width that are set.
void read_decoder(Reader& config, const DecoderKeys& keys, Outline& outline);

// Reads rope_parameters with a dictionary for layers with a window and one for all others. Without them reads
// rope_theta for all layers, and rope_scaling only for layers without a window. REQUIRES: the outline's
// window and its layers' types were read.
void read_ropes_by_type(Reader& config, double absent_window_theta, Outline& outline);

using OfLayer = std::function<bool(int64_t layer)>;
// Reads a list with one of two names, `yes` or `no`, for each layer, and calls `say` with each layer. Makes
// no call if the list is absent.
void read_named_layers(Reader& config, const char* key, std::string_view yes, std::string_view no,
                       const Outline& outline, const std::function<void(int64_t layer, bool yes)>& say);

// Reads the window's width: `absent` if the key is absent, no window if it is null.
void read_window(Reader& config, int64_t absent, Outline& outline);
// Reads from layer_types which layers have a window; `otherwise` decides without that key. Omits block types
// that all equal the outline's default.
void read_layer_types(Reader& config, Outline& outline, const OfLayer& otherwise);
// Reads windows that are off, whatever their width, unless use_sliding_window is true.
void read_optional_window(Reader& config, int64_t absent, Outline& outline, const OfLayer& otherwise);

// Reads which layers have rotary positions, from no_rope_layers or no_rope_layer_interval. REQUIRES: no types
// of layers were read.
void read_rotations(Reader& config, Outline& outline);

// Removes rotary positions from layers without a window.
void turn_windows_alone(Outline& outline);

// The file with its rotary positions changed by `change`, under whichever of the two keys the file has.
base::Json with_own_rope(const Reader& config, const std::function<void(base::Json& rope)>& change);

// The file with transformers' default rotary positions of layers without a window, if it has none:
// proportional, with this part of the pairs rotating.
base::Json with_usual_ropes(const Reader& config, double proportion);

// Gives each layer a block type of its own, equal to its present one, for the caller to change.
void spread_types(Outline& outline);
// Omits the block types if all are the outline's default.
void drop_usual_types(Outline& outline);

}  // namespace sluice::model
