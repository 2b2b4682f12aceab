// Hugging Face's tokenizer.json, run by the Python package `tokenizers` in child processes (the script
// tools/hf_tokenize.py describes the protocol).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "corpus/python_child.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  // Starts one child; up to options.callers start when callers wait. InputError, with the way out, if Python
  // or the script is missing, the package is not installed, or the file is not a tokenizer.
  HuggingFaceTokenizer(const std::filesystem::path& path, const TokenizerOptions& options);

  // A child that ends before its answer is restarted and asked again, once. RunError if the second child
  // ends, too.
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override;
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override;
  std::vector<EncodedText> encode_checked(std::span<const std::string> texts) const override;
  std::vector<EncodedChat> encode_chats(std::span<const std::string> chats) const override;
  std::vector<EncodedChat> encode_prompts(std::span<const std::string> chats) const override;
  bool has_chats() const override { return has_chats_; }

 private:
  // The header that a child sends when it has started.
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
  // Returns an idle child: starts one if all are busy and more may start, else waits until one is given back.
  std::unique_ptr<PythonChild> take_child() const;
  void give_back(std::unique_ptr<PythonChild> child) const;
  // Calls ask(child) with an idle child, which no other caller uses meanwhile.
  template <typename Ask>
  auto with_child(const Ask& ask) const;

  PythonTools tools_;
  std::vector<std::string> arguments_;  // arguments of hf_tokenize.py; the first is the tokenizer's path
  bool has_chats_;
  mutable int more_children_;  // number of children that may still start
  mutable std::vector<std::unique_ptr<PythonChild>> idle_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
};

}  // namespace sluice::corpus
