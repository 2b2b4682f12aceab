// Text to token ids and back. SentencePiece models run in this process; Hugging Face's tokenizer.json runs
// in a child process of the Python package `tokenizers`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::corpus {

struct TokenizerOptions {
  int threads = 0;               // for many texts at once; 0: one a core
  std::string end_token;         // piece that ends documents; empty: the tokenizer's own
  std::filesystem::path python;  // interpreter with `tokenizers`, for tokenizer.json only
  std::filesystem::path script;  // tools/hf_tokenize.py, for tokenizer.json only
};

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of each text, no beginning or end token added. REQUIRES: texts are UTF-8.
  virtual std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const = 0;
  virtual std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const = 0;

  virtual int64_t vocabulary() const = 0;  // ids are in [0, vocabulary)
  virtual int32_t end_id() const = 0;      // the token that ends a document

  std::vector<int32_t> encode(const std::string& text) const { return encode_all({&text, 1}).front(); }
  std::string decode(const std::vector<int32_t>& ids) const { return decode_all({&ids, 1}).front(); }
};

// The tokenizer of a file: Hugging Face's when its name ends in .json, else SentencePiece's. InputError when
// the file is neither, has no token that ends documents, or the child process cannot start.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path,
                                          const TokenizerOptions& options = {});

// The tokenizer's file in the folder of a corpus, where `corpus build` puts it; empty when there is none.
std::filesystem::path tokenizer_beside(const std::filesystem::path& prefix);

}  // namespace sluice::corpus
