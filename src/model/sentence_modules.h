// A model folder's config.json, completed by sentence-transformers' files beside it: modules.json, and a
// config.json in each module's folder, if it has one.
#pragma once

#include <filesystem>

#include "base/json_fwd.h"

namespace sluice::model {

// The config.json of a folder. If modules.json makes the model one of embeddings, the result names the class
// without a head and the pooling (families/head.h's kSentencePooling). InputError naming a module or a
// pooling that Sluice does not compute.
base::Json folder_config(const std::filesystem::path& folder);

}  // namespace sluice::model
