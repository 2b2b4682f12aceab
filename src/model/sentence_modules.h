// A model folder's config.json, with what sentence-transformers' files beside it say: modules.json, and of
// each module that has one a config.json in its folder.
#pragma once

#include <filesystem>

#include "base/json_fwd.h"

namespace sluice::model {

// The config.json of a folder. Where modules.json makes the model one of embeddings, it names the class
// without a head, and what stands for a text (families/head.h's kSentencePooling). InputError naming a
// module, or a pooling, that Sluice does not compute.
base::Json folder_config(const std::filesystem::path& folder);

}  // namespace sluice::model
