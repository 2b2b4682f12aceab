// Trains a tokenizer for conversations: the script tools/train_tokenizer.py writes a Hugging Face
// tokenizer.json whose vocabulary contains the control tokens of a chat template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/python_child.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

class ChatTokenizerTrainer {
 public:
  // `told`: the template (a file, or "chatml", the default), the end token, and whether texts are
  // conversations, JSON objects. InputError if Python or its packages are missing, or if the vocabulary has
  // no room for the template's control tokens.
  ChatTokenizerTrainer(const std::filesystem::path& folder, int64_t vocabulary, const TokenizerOptions& told,
                       int64_t sample_bytes)
      : child_(told.tools, "train_tokenizer.py",
               {folder.string(), std::to_string(vocabulary), told.end_token, options_text(told.chat),
                told.chats ? "chats" : "texts"},
               folder.string()),
        sample_bytes_(sample_bytes) {}

  bool full() const { return taken_bytes_ >= sample_bytes_; }
  int64_t taken_bytes() const { return taken_bytes_; }

  void add(std::string_view text) {
    constexpr int64_t kQuestionBytes = 1 << 20;
    const auto bytes = static_cast<int64_t>(text.size());
    taken_bytes_ += bytes;
    waiting_bytes_ += bytes;
    waiting_.emplace_back(text);
    if (waiting_bytes_ >= kQuestionBytes) send();
  }

  // Writes tokenizer.json, tokenizer_config.json and chat_template.jinja into the folder. InputError, naming
  // the possible sizes, if the texts do not give a vocabulary of this size.
  void train() {
    send();
    ask('F');
  }

 private:
  void ask(char question) {
    child_.send(&question, 1);
    child_.check_status();
  }

  void send() {
    const char question = 'T';
    child_.send(&question, 1);
    child_.send_number<uint64_t>(waiting_.size());
    for (const std::string& text : waiting_) child_.send_text(text);
    child_.check_status();
    waiting_.clear();
    waiting_bytes_ = 0;
  }

  PythonChild child_;
  int64_t sample_bytes_;
  int64_t taken_bytes_ = 0;
  std::vector<std::string> waiting_;  // texts for the next message to the script
  int64_t waiting_bytes_ = 0;
};

}  // namespace sluice::corpus
