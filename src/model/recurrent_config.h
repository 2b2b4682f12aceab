// Recurrent layers in a config.json. For the model module's own files.
#pragma once

#include <string>

#include "base/json.h"
#include "model/shape.h"

namespace sluice::model {

// Which layers are recurrent, as layer_types says, or where it is absent all but one in `pattern`. InputError
// naming `name`, the key and the value.
void read_recurrent_types(const base::Json& config, int64_t pattern, const std::string& name, Shape& shape);

// Gated delta rules: sizes under "linear_…", `absent` where the file has none.
void read_gated_delta(const base::Json& config, const std::string& name, const Recurrent& absent,
                      Shape& shape);
void write_gated_delta(const Shape& shape, base::Json& config);

// Mamba-2: sizes under "mamba_…", those of transformers' Granite where the file has none.
void read_mamba2(const base::Json& config, const std::string& name, Shape& shape);
void write_mamba2(const Shape& shape, base::Json& config);

}  // namespace sluice::model
