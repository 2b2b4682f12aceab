// Files beside a corpus: its tokenizer, the tokenizer's configuration and chat template, and lengths.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "corpus/indexed.h"

namespace sluice::corpus {

inline constexpr const char* kMoreTemplates = "additional_chat_templates";

// Tokenizer files that `corpus build` puts beside a corpus, except the templates in folder kMoreTemplates.
const std::vector<std::string>& tokenizer_files();

// Returns a local folder with these files: the corpus' own folder, or for a corpus in a bucket a copy in
// places.cache, which is made unless a copy of this version exists. RunError if the bucket cannot be reached.
// If `places` does not know the corpus' bucket, the corpus has no files beside it.
std::filesystem::path folder_beside(const std::filesystem::path& prefix, const IndexedOptions& places);

}  // namespace sluice::corpus
