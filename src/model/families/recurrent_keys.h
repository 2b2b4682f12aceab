// Recurrent layers in a config.json. For families' readers.
#pragma once

#include "model/families/reader.h"
#include "model/outline.h"

namespace sluice::model {

// Reads from layer_types which layers are recurrent. Without the key all but every `pattern`-th layer are.
void read_recurrent_types(Reader& config, int64_t pattern, Outline& outline);

// Reads sizes of gated delta rules under "linear_…"; `absent` has defaults for sizes that the file lacks.
void read_gated_delta(Reader& config, const Recurrent& absent, Outline& outline);

// A family's key names for Mamba-2's sizes, and defaults. The key `expand` gives the width of all heads as a
// multiple of the rows' width. Without it the width of a head is used.
struct Mamba2Keys {
  const char *groups, *heads, *state, *head_width, *convolution, *convolution_bias, *bias, *expand, *eps;
  int64_t absent_groups, absent_heads, absent_state;
  double absent_eps;
  int64_t absent_width = 0;  // a head's, without `expand`
};
// REQUIRES: the outline's width was read.
void read_mamba2(Reader& config, const Mamba2Keys& keys, Outline& outline);

}  // namespace sluice::model
