// Text to token ids and back. SentencePiece models run in this process; Hugging Face's tokenizer.json runs
// in a child process of the Python package `tokenizers`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/interval.h"
#include "corpus/chat.h"
#include "corpus/python_child.h"

namespace sluice::corpus {

// Where a tokenizer is told to put no token, in begin_token or end_token.
inline constexpr const char* kNoToken = "none";
// As end_token: what the tokenizer itself puts behind a text that a model reads whole (a post-processor's
// [SEP]).
inline constexpr const char* kAddedToken = "added";

struct TokenizerOptions {
  int threads = 0;          // for the texts of one call; 0: one a core
  int callers = 1;          // threads that call at the same time
  std::string begin_token;  // piece in front of documents; empty: as the tokenizer says; kNoToken: none
  // Piece that ends documents; empty: the tokenizer's own; kNoToken: none; kAddedToken: as that says.
  std::string end_token;
  bool needs_end = false;  // InputError where no end is known and neither of these is told
  PythonTools tools;       // for tokenizer.json only
  bool chats = false;      // encode_chats() or encode_prompts() will be called
  ChatOptions chat;        // how these are rendered
};

// A document's tokens.
struct EncodedText {
  std::vector<int32_t> ids;
  bool changed = false;  // they decode to another text
};

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of each text, no beginning or end token added. REQUIRES: texts are UTF-8.
  virtual std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const = 0;
  // Their texts, each as one from its beginning on: what tokens add to those in front of them,
  // corpus/continuation.h finds. Ids that are no token say nothing.
  virtual std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const = 0;
  // The ids of each text, as encode_all(), and whether they decode to it. REQUIRES: texts are UTF-8.
  virtual std::vector<EncodedText> encode_checked(std::span<const std::string> texts) const;
  // Of conversations, JSON objects with "messages", or as ChatOptions::answers says (tools/conversations.py
  // says in which forms, tools/chat_spans.py what of them is learnt). REQUIRES: has_chats().
  virtual std::vector<EncodedChat> encode_chats(std::span<const std::string> chats) const;
  // Likewise as something to answer: behind them stands what the template puts in front of the assistant's
  // turn. Without masks: nothing of it is learnt. REQUIRES: has_chats().
  virtual std::vector<EncodedChat> encode_prompts(std::span<const std::string> chats) const;

  // Where TokenizerOptions::chats were asked for, and the tokenizer has a template.
  virtual bool has_chats() const { return false; }

  int64_t vocabulary() const { return vocabulary_; }  // ids are in [0, vocabulary)
  // Those of [0, vocabulary) that are no token, ascending.
  const std::vector<base::Interval>& gaps() const { return gaps_; }
  // Whether a token is a byte of a letter behind its first, in a vocabulary that says letters by bytes.
  bool is_later_byte(int32_t id) const { return later_bytes_.contains(id); }
  int32_t begin_id() const { return begin_id_; }  // the token in front of a document; -1: there is none
  int32_t end_id() const { return end_id_; }      // the token that ends a document; -1: there is none

  std::vector<int32_t> encode(const std::string& text) const { return encode_all({&text, 1}).front(); }
  std::string decode(const std::vector<int32_t>& ids) const { return decode_all({&ids, 1}).front(); }

 protected:
  // InputError when options need an end and there is none. `name` stands in it.
  void require_end(const TokenizerOptions& options, const std::string& name) const;

  int64_t vocabulary_ = 0;
  std::vector<base::Interval> gaps_;
  std::unordered_set<int32_t> later_bytes_;
  int32_t begin_id_ = -1;
  int32_t end_id_ = -1;
};

// A text's ids between the tokens that stand around documents, cut in front of the last of these where they
// are more than `most`.
std::vector<int32_t> with_ends(const Tokenizer& tokenizer, std::vector<int32_t> ids,
                               int64_t most = std::numeric_limits<int64_t>::max());

// Rows of a model's vocabulary that are no token of this tokenizer and none of `others`, ascending.
std::vector<base::Interval> rows_without_token(const Tokenizer& tokenizer, int64_t rows,
                                               std::span<const int64_t> others);

}  // namespace sluice::corpus
