// Makes the config.json of an export.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "checkpoint/companions.h"
#include "model/model.h"

namespace sluice::checkpoint {

struct ExportedConfig {
  std::string dtype = "float32";  // the weights' type
  int64_t least_positions = 0;    // raises max_position_embeddings to it; 0: as in companions, or 2048
  int64_t positions = 0;          // sets max_position_embeddings; 0: not given
};

// The config.json of a model of this shape: the companions' one, with its token ids and all other keys, if it
// describes that shape; otherwise one made from the shape. InputError if options.positions would change how
// the model computes its rotary positions.
base::Json exported_config(const std::vector<Companion>& companions, const model::Model& model,
                           const ExportedConfig& options);

}  // namespace sluice::checkpoint
