// Hugging Face's tokenizer.json, run by the Python package `tokenizers` in a child process (the script
// tools/hf_tokenize.py says what passes between the two).
#pragma once

#include <sys/types.h>

#include <mutex>

#include "corpus/tokenizer.h"

namespace sluice::corpus {

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  // InputError when python or script are missing, the package is not installed, or the file is not a
  // tokenizer, each with the way out.
  HuggingFaceTokenizer(const std::filesystem::path& path, const TokenizerOptions& options);
  ~HuggingFaceTokenizer() override;

  // RunError when the child ends before it has answered.
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override;
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override;
  int64_t vocabulary() const override { return vocabulary_; }
  int32_t end_id() const override { return end_id_; }

 private:
  void start(const TokenizerOptions& options);
  void stop();
  void send(const void* data, size_t size) const;
  void receive(void* data, size_t size) const;
  void check_status() const;  // reads the byte before each answer; throws the child's message

  std::string path_;
  int socket_ = -1;
  pid_t child_ = -1;
  int64_t vocabulary_ = 0;
  int32_t end_id_ = -1;
  mutable std::mutex mutex_;  // one question at a time
};

}  // namespace sluice::corpus
