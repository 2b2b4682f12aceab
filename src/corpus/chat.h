// Conversations as documents: how they are rendered, and what is counted of them. tools/chat_template.py
// renders them, in the child process of their tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "corpus/findings.h"

namespace sluice::corpus {

// What conversations are made of where objects have no messages: a text, or a list of messages, each.
struct AnswerKeys {
  std::string prompt = "prompt";
  std::string answer = "answer";
  std::string other_answer;  // of pairs: without which an object is left out as well; empty: none
};

struct ChatOptions {
  std::string chat_template;  // a file, or the name of one of the tokenizer's; empty: the tokenizer's own
  std::string sanitize = "users";      // whose control tokens are text: users, all or none
  std::string date;                    // YYYY-MM-DD that templates are told; empty: of the moment
  std::vector<std::string> arguments;  // of the template, NAME=VALUE, where the value is JSON or a text
  std::optional<AnswerKeys> answers;   // conversations are prompts and answers instead
};

// As tools/chat_template.py takes them. InputError naming an argument without a name, or a date that is none.
std::string options_text(const ChatOptions& options);

// Of one conversation, or of many.
struct ChatCounts {
  int64_t turns = 0;                // of the assistant that have a loss
  int64_t unlearnt_turns = 0;       // of these: the template rewrites them, so nothing of them is learnt
  int64_t rewritten_documents = 0;  // with such turns
  int64_t displaced_turns = 0;  // learnt behind other text than stands in front of an answer when it is given
  int64_t endless_turns = 0;    // without an end token
  int64_t control_tokens = 0;   // that somebody wrote, and that are read as text
  int64_t dated_documents = 0;  // whose template asked for the date
  Findings lost;                // documents of which something would be lost: what, with its place
  std::map<std::string, int64_t> unread_keys;  // that nobody reads: in how many documents

  ChatCounts& operator+=(const ChatCounts& other);
};

base::Json to_json(const ChatCounts& counts);
ChatCounts chat_counts_from_json(const base::Json& json, const std::string& name);

// A conversation as a document. Its template says everything that stands in it: no begin or end token is
// added.
struct EncodedChat {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;  // 1: the model learns to say this token
  ChatCounts counts;
  std::string fault;  // why it cannot be one, with a way out; then there are no ids
  bool lost = false;  // the fault is that something of it would be lost
};

// The counts that the notes of tools/chat_template.py, JSON, say of a conversation.
ChatCounts counts_of_notes(const std::string& notes);

// The template that renders conversations of a tokenizer, as a file's text: the given one, or of a folder's
// own the file chat_template.jinja. Empty: none, or inside tokenizer_config.json.
std::string template_text(const ChatOptions& options, const std::filesystem::path& tokenizer);

}  // namespace sluice::corpus
