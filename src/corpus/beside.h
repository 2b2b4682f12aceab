// Files beside a corpus: its tokenizer and how that is used, and lengths.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "corpus/indexed.h"

namespace sluice::corpus {

inline constexpr const char* kMoreTemplates = "additional_chat_templates";

// Files of a tokenizer that `corpus build` puts beside a corpus; templates in a folder kMoreTemplates apart.
const std::vector<std::string>& tokenizer_files();

// The folder in which these files can be read, where they are: the corpus' own, or for a corpus in a bucket a
// copy of them in places.cache, made when there is none of their version. RunError when the bucket cannot be
// reached; a corpus in a bucket that `places` does not know has nothing beside it.
std::filesystem::path folder_beside(const std::filesystem::path& prefix, const IndexedOptions& places);

}  // namespace sluice::corpus
