// Recurrent layers in a config.json. For the model module's own files.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::model {

// Which layers are recurrent, as layer_types says, or where it is absent all but one in `pattern`. InputError
// naming `name`, the key and the value.
void read_recurrent_types(const base::Json& config, int64_t pattern, const std::string& name, Shape& shape);

// Gated delta rules: sizes under "linear_…", `absent` where the file has none.
void read_gated_delta(const base::Json& config, const std::string& name, const Recurrent& absent,
                      Shape& shape);
void write_gated_delta(const Shape& shape, base::Json& config);

// As files with recurrent layers alone lack them.
void write_recurrent_types(const Shape& shape, base::Json& config);

// What a family's files call Mamba-2's sizes, and what these are where a file has none.
struct Mamba2Keys {
  const char *groups, *heads, *state, *head_width, *convolution, *convolution_bias, *bias, *expand, *eps;
  int64_t absent_groups, absent_heads, absent_state;
  double absent_eps;
};
inline constexpr Mamba2Keys kGraniteMambaKeys{"mamba_n_groups",
                                              "mamba_n_heads",
                                              "mamba_d_state",
                                              "mamba_d_head",
                                              "mamba_d_conv",
                                              "mamba_conv_bias",
                                              "mamba_proj_bias",
                                              "mamba_expand",
                                              "rms_norm_eps",
                                              1,
                                              128,
                                              256,
                                              1e-6};
inline constexpr Mamba2Keys kMamba2ModelKeys{
    "n_groups", "num_heads", "state_size",         "head_dim", "conv_kernel", "use_conv_bias",
    "use_bias", "expand",    "layer_norm_epsilon", 8,          128,           128,
    1e-5};
void read_mamba2(const base::Json& config, const Mamba2Keys& keys, const std::string& name, Shape& shape);
void write_mamba2(const Shape& shape, const Mamba2Keys& keys, base::Json& config);

// GLA: sizes as fractions of hidden_size.
void read_gla(const base::Json& config, const std::string& name, Shape& shape);
void write_gla(const Shape& shape, base::Json& config);

}  // namespace sluice::model
