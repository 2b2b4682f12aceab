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

// Value of begin_token or end_token: no token.
inline constexpr const char* kNoToken = "none";
// Value of end_token: the token that the tokenizer itself adds behind a text that a model reads whole (a
// post-processor's [SEP]).
inline constexpr const char* kAddedToken = "added";

struct TokenizerOptions {
  int threads = 0;          // threads for the texts of one call; 0: one a core
  int callers = 1;          // threads that call at the same time
  std::string begin_token;  // piece in front of documents; empty: the tokenizer's own; kNoToken: none
  // Piece that ends documents; empty: the tokenizer's own; kNoToken: none; kAddedToken: see there.
  std::string end_token;
  bool needs_end = false;  // InputError if no end token is known and end_token is empty
  PythonTools tools;       // for tokenizer.json only
  bool chats = false;      // encode_chats() or encode_prompts() will be called
  ChatOptions chat;        // how chats are rendered
};

// A document's tokens.
struct EncodedText {
  std::vector<int32_t> ids;
  bool changed = false;  // the ids decode to another text
};

// Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of each text, without begin or end token. REQUIRES: texts are UTF-8.
  virtual std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const = 0;
  // The text of each list of ids, decoded as a whole text. corpus/continuation.h finds the text that tokens
  // add to the tokens in front of them. Ids that are not tokens give no text.
  virtual std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const = 0;
  // The ids of each text, as encode_all(), and whether they decode to that text. REQUIRES: texts are UTF-8.
  virtual std::vector<EncodedText> encode_checked(std::span<const std::string> texts) const;
  // Encodes conversations: JSON objects with "messages" or the keys of ChatOptions::answers. Their forms:
  // tools/conversations.py; which spans are learnt: tools/chat_spans.py. REQUIRES: has_chats().
  virtual std::vector<EncodedChat> encode_chats(std::span<const std::string> chats) const;
  // Encodes conversations as prompts: the template's text in front of the assistant's turn follows at the
  // end. There are no masks, because nothing is learnt from a prompt. REQUIRES: has_chats().
  virtual std::vector<EncodedChat> encode_prompts(std::span<const std::string> chats) const;

  // True if TokenizerOptions::chats was set and the tokenizer has a template.
  virtual bool has_chats() const { return false; }

  int64_t vocabulary() const { return vocabulary_; }  // ids are in [0, vocabulary)
  // Ids in [0, vocabulary) that are not tokens, ascending.
  const std::vector<base::Interval>& gaps() const { return gaps_; }
  // Whether a token is a non-first byte of a character, in a vocabulary with byte tokens.
  bool is_later_byte(int32_t id) const { return later_bytes_.contains(id); }
  int32_t begin_id() const { return begin_id_; }  // the token in front of a document; -1: there is none
  int32_t end_id() const { return end_id_; }      // the token that ends a document; -1: there is none

  std::vector<int32_t> encode(const std::string& text) const { return encode_all({&text, 1}).front(); }
  std::string decode(const std::vector<int32_t>& ids) const { return decode_all({&ids, 1}).front(); }

 protected:
  // InputError naming `name` if options need an end token and there is none.
  void require_end(const TokenizerOptions& options, const std::string& name) const;

  int64_t vocabulary_ = 0;
  std::vector<base::Interval> gaps_;
  std::unordered_set<int32_t> later_bytes_;
  int32_t begin_id_ = -1;
  int32_t end_id_ = -1;
};

// Puts the begin and end tokens of documents around a text's ids. If the result is longer than `most`, it is
// cut in front of the end token.
std::vector<int32_t> with_ends(const Tokenizer& tokenizer, std::vector<int32_t> ids,
                               int64_t most = std::numeric_limits<int64_t>::max());

// Rows of a model's vocabulary that are neither a token of this tokenizer nor in `others`, ascending.
std::vector<base::Interval> rows_without_token(const Tokenizer& tokenizer, int64_t rows,
                                               std::span<const int64_t> others);

}  // namespace sluice::corpus
