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
  // Starts one child; as many as there are options.callers start when callers wait. InputError when python or
  // script are missing, the package is not installed, or the file is not a tokenizer, each with the way out.
  HuggingFaceTokenizer(const std::filesystem::path& path, const TokenizerOptions& options);

  // A child that ends before it has answered is started anew and asked again, once; RunError when that one
  // ends, too.
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override;
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override;
  std::vector<EncodedText> encode_checked(std::span<const std::string> texts) const override;
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
  std::unique_ptr<PythonChild> start_child(Head& head) const;
  // A child that nobody else asks: a new one when all are busy and there may be more, else waits for one.
  std::unique_ptr<PythonChild> take_child() const;
  void give_back(std::unique_ptr<PythonChild> child) const;
  // Calls ask(child) with one that nobody else asks.
  template <typename Ask>
  auto with_child(const Ask& ask) const;

  PythonTools tools_;
  std::vector<std::string> arguments_;  // of hf_tokenize.py; the first is the tokenizer's path
  bool has_chats_;
  mutable int more_children_;  // that may be started
  mutable std::vector<std::unique_ptr<PythonChild>> idle_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
};

}  // namespace sluice::corpus
