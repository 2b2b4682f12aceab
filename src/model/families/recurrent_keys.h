// Recurrent layers in a config.json. For families' readers.
#pragma once

#include "model/families/reader.h"
#include "model/shape.h"

namespace sluice::model {

// Which layers are recurrent, as layer_types says, or where it is absent all but one in `pattern`.
void read_recurrent_types(Reader& config, int64_t pattern, Shape& shape);

// Gated delta rules: sizes under "linear_…", `absent` where the file has none.
void read_gated_delta(Reader& config, const Recurrent& absent, Shape& shape);

// What a family's files call Mamba-2's sizes, and what these are where a file has none.
struct Mamba2Keys {
  const char *groups, *heads, *state, *head_width, *convolution, *convolution_bias, *bias, *expand, *eps;
  int64_t absent_groups, absent_heads, absent_state;
  double absent_eps;
};
// REQUIRES: the shape's width was read.
void read_mamba2(Reader& config, const Mamba2Keys& keys, Shape& shape);

}  // namespace sluice::model
