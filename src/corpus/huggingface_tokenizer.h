// Hugging Face's tokenizer.json, run by the Python package `tokenizers` in child processes (the script
// tools/hf_tokenize.py says what passes between them).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "corpus/python_child.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  // A child for each of options.callers. InputError when python or script are missing, the package is not
  // installed, or the file is not a tokenizer, each with the way out.
  HuggingFaceTokenizer(const std::filesystem::path& path, const TokenizerOptions& options);

  // A child that ends before it has answered is started anew and asked again, once; RunError when that one
  // ends, too.
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override;
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override;
  std::vector<EncodedChat> encode_chats(std::span<const std::string> chats) const override;
  std::vector<EncodedChat> encode_prompts(std::span<const std::string> chats) const override;
  bool has_chats() const override { return has_chats_; }

 private:
  // What a child says of itself when it has started.
  struct Head {
    int64_t vocabulary = 0;
    int32_t begin_id = -1;
    int32_t end_id = -1;
    std::vector<base::Interval> gaps;
    std::vector<int32_t> later_bytes;
  };
  static Head receive_head(PythonChild& child);
  std::vector<EncodedChat> encode_by_template(char question, std::span<const std::string> chats) const;
  // Calls ask(child) with one that nobody else asks, waiting for it when all are busy.
  template <typename Ask>
  auto with_child(const Ask& ask) const;

  bool has_chats_;
  std::vector<std::unique_ptr<PythonChild>> children_;
  mutable std::vector<PythonChild*> idle_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
};

}  // namespace sluice::corpus
