// Tokenizers as commands find them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "corpus/load_tokenizer.h"
#include "corpus/tokenizer.h"

namespace sluice::cli {

// With this machine's Python.
std::unique_ptr<corpus::Tokenizer> open_tokenizer(const std::filesystem::path& path);

// The tokenizer beside a corpus, or nothing.
std::unique_ptr<corpus::Tokenizer> tokenizer_beside(const std::filesystem::path& prefix);

// "; 1 begins and 2 ends documents": what is true of it, as ids of -1 are none.
std::string around_documents(int32_t begin_id, int32_t end_id);

}  // namespace sluice::cli
