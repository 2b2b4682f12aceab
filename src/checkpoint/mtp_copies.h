// Copies of embedding and head that files hold beside an MTP layer, which shares both with its model.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/file_names.h"

namespace sluice::checkpoint {

// The name in files of the tensor that the tensor `name` is a copy of; none: it is no such copy. `table`: of
// the model. Examples: "model.layers.61.embed_tokens.weight", "model.layers.61.shared_head.head.weight".
std::optional<std::string> original_of_mtp(const std::string& name, const model::ParameterTable& table,
                                           const FileNames& names);

}  // namespace sluice::checkpoint
