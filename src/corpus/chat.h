// Conversations as documents: options of rendering, and counts. tools/chat_template.py renders conversations
// in the child process of their tokenizer.
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

// The keys of objects without "messages": each key holds a text or a list of messages.
struct AnswerKeys {
  std::string prompt = "prompt";
  std::string answer = "answer";
  std::string other_answer;  // preference pairs: objects without this key are left out, too; empty: none
};

struct ChatOptions {
  std::string chat_template;  // a file, or the name of one of the tokenizer's; empty: the tokenizer's own
  std::string sanitize = "users";      // control tokens as text: users' (all but the assistant's), all, none
  std::string date;                    // YYYY-MM-DD for templates that ask for the date; empty: today
  std::vector<std::string> arguments;  // the template's, NAME=VALUE; a value is JSON or a text
  std::optional<AnswerKeys> answers;   // set: objects hold prompts and answers, not messages
};

// Options as tools/chat_template.py reads them. InputError naming an argument without a name, or a bad date.
std::string options_text(const ChatOptions& options);

// Counts over one conversation or many.
struct ChatCounts {
  int64_t turns = 0;                // the assistant's turns that should have a loss
  int64_t unlearnt_turns = 0;       // part of `turns`: not learnt, because the template rewrites them
  int64_t rewritten_documents = 0;  // documents with such turns
  int64_t displaced_turns = 0;      // learnt behind other text than precedes an answer in generation
  int64_t endless_turns = 0;        // turns without an end token
  int64_t control_tokens = 0;       // written by users or others, and read as plain text
  int64_t dated_documents = 0;      // documents whose template asked for the date
  Findings lost;                    // documents that would lose some content: which content, with its place
  std::map<std::string, int64_t> unread_keys;  // keys that are ignored, each with its number of documents

  ChatCounts& operator+=(const ChatCounts& other);
};

base::Json to_json(const ChatCounts& counts);
ChatCounts chat_counts_from_json(const base::Json& json, const std::string& name);

// A rendered conversation. The template writes everything, begin and end tokens included, so the build adds
// no such token.
struct EncodedChat {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;  // 1: the token is a target of the loss
  ChatCounts counts;
  std::string fault;  // why the conversation cannot be a document, with a way out; then there are no ids
  bool lost = false;  // the fault is that part of the conversation would be lost
};

// Parses the counts of a conversation from `notes`, the JSON that tools/chat_template.py returns.
ChatCounts counts_of_notes(const std::string& notes);

// The text of the template for a tokenizer's conversations: the one given in `options`, or the tokenizer
// folder's chat_template.jinja. Empty: there is none, or it stands inside tokenizer_config.json.
std::string template_text(const ChatOptions& options, const std::filesystem::path& tokenizer);

}  // namespace sluice::corpus
