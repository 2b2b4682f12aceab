// The config.json of an export.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "checkpoint/companions.h"
#include "model/shape.h"

namespace sluice::checkpoint {

struct ExportedConfig {
  std::string dtype = "float32";  // of the weights
  int64_t least_positions = 0;    // max_position_embeddings, if companions' is less; 0: theirs, or 2048
  int64_t positions = 0;          // max_position_embeddings, whatever companions say; 0: not given
};

// The config.json of a model of this shape: the companions' with its token ids and whatever else it says,
// where they have one of that shape; else one made from the shape. InputError where the positions asked for
// would make it another model's.
base::Json exported_config(const std::vector<Companion>& companions, const model::Shape& shape,
                           const ExportedConfig& options);

}  // namespace sluice::checkpoint
