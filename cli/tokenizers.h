// Opens tokenizers for commands.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "corpus/load_tokenizer.h"
#include "corpus/tokenizer.h"

namespace sluice::cli {

// Uses this machine's Python.
std::unique_ptr<corpus::Tokenizer> open_tokenizer(const std::filesystem::path& path);

// The tokenizer beside a corpus, or nothing.
std::unique_ptr<corpus::Tokenizer> tokenizer_beside(const std::filesystem::path& prefix);

// "; 1 begins and 2 ends documents": parts with an id of -1 are left out.
std::string around_documents(int32_t begin_id, int32_t end_id);

}  // namespace sluice::cli
