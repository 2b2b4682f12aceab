// Loads the tokenizer of a file, a folder or a corpus.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "corpus/indexed.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

// The file of a tokenizer: in a folder tokenizer.json, else tokenizer.model; any other path is the file
// itself. InputError if the folder has neither.
std::filesystem::path tokenizer_file(const std::filesystem::path& path);

// The begin and end tokens that tokenizer_config.json beside a SentencePiece model configures; each is empty
// if not configured. (For tokenizer.json, the script of the tokenizer reads that file.)
struct ConfiguredTokens {
  std::string begin_token;
  std::string end_token;
};
ConfiguredTokens configured_tokens(const std::filesystem::path& model);

// Loads a tokenizer from a file or folder: Hugging Face's if the file ends in .json, else SentencePiece's.
//
// Documents begin with a token if the tokenizer itself puts one in front of texts: by the post-processor of a
// tokenizer.json, or by add_bos_token of the tokenizer_config.json beside it. They end with the eos_token of
// tokenizer_config.json, a SentencePiece model's own, or the first known name in the vocabulary.
//
// InputError if the file is neither kind, if options require an end token and there is none, or if the child
// process cannot start.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          const TokenizerOptions& options = {});

// The tokenizer file in the folder of a corpus, where `corpus build` puts it, or a copy of it
// (corpus/beside.h); empty if there is none.
std::filesystem::path tokenizer_beside(const std::filesystem::path& prefix,
                                       const IndexedOptions& places = {});

}  // namespace sluice::corpus
