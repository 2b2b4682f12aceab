// The tokenizer of a file, a folder or a corpus.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "corpus/indexed.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

// The file of a tokenizer: the tokenizer.json or else tokenizer.model of a folder, any other path itself.
// InputError when the folder has neither.
std::filesystem::path tokenizer_file(const std::filesystem::path& path);

// What the tokenizer_config.json beside a SentencePiece model says of begin and end; empty where it, or the
// file, says nothing. (For tokenizer.json its script reads that file.)
struct ConfiguredTokens {
  std::string begin_token;
  std::string end_token;
};
ConfiguredTokens configured_tokens(const std::filesystem::path& model);

// The tokenizer of a file or folder: Hugging Face's when the file's name ends in .json, else SentencePiece's.
//
// Documents begin with a token where the tokenizer itself puts one in front of texts: the post-processor of a
// tokenizer.json, or add_bos_token of the tokenizer_config.json beside it. They end with the eos_token of
// tokenizer_config.json, a SentencePiece model's own, or the first known name that is in the vocabulary.
//
// InputError when the file is neither, has no token to end documents with where options need one, or the
// child process cannot start.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          const TokenizerOptions& options = {});

// The tokenizer's file in the folder of a corpus, where `corpus build` puts it, or a copy of it
// (corpus/beside.h); empty when there is none.
std::filesystem::path tokenizer_beside(const std::filesystem::path& prefix,
                                       const IndexedOptions& places = {});

}  // namespace sluice::corpus
