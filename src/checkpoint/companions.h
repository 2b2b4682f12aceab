// What goes with a model's weights and is not learnt: config.json, tokenizer, generation settings. Import
// reads these files, every checkpoint keeps them, export writes them again.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "model/shape.h"

namespace sluice::checkpoint {

struct Companion {
  std::string name;  // of the file
  std::string bytes;
};

// Whether a file of this name goes with a model: Hugging Face's names for the above.
bool is_companion(std::string_view name);

// Those in a Hugging Face folder, by name.
std::vector<Companion> read_companions(const std::filesystem::path& folder);

struct ExportedConfig {
  std::string dtype = "float32";  // of the weights
  int64_t least_positions = 0;    // max_position_embeddings, if companions' is less; 0: theirs, or 2048
  int64_t positions = 0;          // max_position_embeddings, whatever companions say; 0: not given
};

// The config.json of a model of this shape: the companions' with its token ids and whatever else it says,
// where they have one of that shape; else one made from the shape.
base::Json exported_config(const std::vector<Companion>& companions, const model::Shape& shape,
                           const ExportedConfig& options);

}  // namespace sluice::checkpoint
