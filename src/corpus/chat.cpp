#include "corpus/chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"

namespace sluice::corpus {

using base::InputError;
using base::Json;
using base::text;

namespace fs = std::filesystem;

namespace {

constexpr const char* kTemplate = "chat_template.jinja";

bool is_date(const std::string& date) {
  const std::string form = "dddd-dd-dd";
  const auto fits = [](char each, char kind) {
    return kind == 'd' ? each >= '0' && each <= '9' : each == kind;
  };
  return date.size() == form.size() && std::equal(date.begin(), date.end(), form.begin(), fits) &&
         date.substr(5, 2) >= "01" && date.substr(5, 2) <= "12" && date.substr(8) >= "01" &&
         date.substr(8) <= "31";
}

// The value of an argument: JSON, or else a text. A value that begins like a list, an object or a quoted text
// must be JSON.
Json argument_value(const std::string& value, const std::string& name) {
  Json parsed;
  const auto fault = base::read_json_text(value, base::JsonDialect::kPython, parsed);
  if (!fault) return parsed;
  if (value.find_first_of("[{\"") != 0) return value;
  throw InputError(described(*fault, text("--template-argument ", name)));
}

Json arguments_of(const std::vector<std::string>& told) {
  Json arguments = Json::object();
  for (const std::string& each : told) {
    const size_t equals = each.find('=');
    if (equals == each.npos || equals == 0) {
      throw InputError(
          text("--template-argument is '", each, "': give NAME=VALUE, as in enable_thinking=false"));
    }
    const std::string value = each.substr(equals + 1);
    arguments[each.substr(0, equals)] = argument_value(value, each.substr(0, equals));
  }
  return arguments;
}

// The template of that name in the tokenizer's own files; empty: there is none.
std::string named_template(const std::string& name, const fs::path& folder) {
  const fs::path file = folder / "additional_chat_templates" / (name + ".jinja");
  if (fs::exists(file)) return base::read_file(file);
  if (name == "default" && fs::exists(folder / kTemplate)) return base::read_file(folder / kTemplate);
  if (!fs::exists(folder / "tokenizer_config.json")) return "";
  const Json config = base::read_python_json(folder / "tokenizer_config.json");
  const Json* templates = base::find(config, "chat_template");
  if (templates == nullptr || !templates->is_array()) return "";
  for (const Json& each : *templates) {
    if (!each.is_object() || each.value("name", Json()) != name) continue;
    const Json* found = base::find(each, "template");
    if (found != nullptr && found->is_string()) return found->get<std::string>();
  }
  return "";
}

}  // namespace

std::string options_text(const ChatOptions& options) {
  if (!options.date.empty() && !is_date(options.date)) {
    throw InputError(text("--chat-date is '", options.date, "': give a day as YYYY-MM-DD"));
  }
  Json json = {{"template", options.chat_template},
               {"sanitize", options.sanitize},
               {"date", options.date},
               {"arguments", arguments_of(options.arguments)}};
  if (options.answers) {
    json["answers"] = {{"prompt", options.answers->prompt},
                       {"answer", options.answers->answer},
                       {"other", options.answers->other_answer}};
  }
  return base::json_text(json);
}

ChatCounts& ChatCounts::operator+=(const ChatCounts& other) {
  turns += other.turns;
  unlearnt_turns += other.unlearnt_turns;
  rewritten_documents += other.rewritten_documents;
  displaced_turns += other.displaced_turns;
  endless_turns += other.endless_turns;
  control_tokens += other.control_tokens;
  dated_documents += other.dated_documents;
  lost += other.lost;
  for (const auto& [key, documents] : other.unread_keys) unread_keys[key] += documents;
  return *this;
}

Json to_json(const ChatCounts& counts) {
  return {{"turns", counts.turns},
          {"unlearnt_turns", counts.unlearnt_turns},
          {"rewritten_documents", counts.rewritten_documents},
          {"displaced_turns", counts.displaced_turns},
          {"endless_turns", counts.endless_turns},
          {"control_tokens", counts.control_tokens},
          {"dated_documents", counts.dated_documents},
          {"lost_documents", counts.lost.count},
          {"lost", counts.lost.first},
          {"unread_keys", Json(counts.unread_keys)}};
}

ChatCounts chat_counts_from_json(const Json& json, const std::string& name) {
  ChatCounts counts;
  counts.turns = base::require<int64_t>(json, "turns", name);
  counts.unlearnt_turns = base::require<int64_t>(json, "unlearnt_turns", name);
  counts.rewritten_documents = base::require<int64_t>(json, "rewritten_documents", name);
  counts.displaced_turns = base::require<int64_t>(json, "displaced_turns", name);
  counts.endless_turns = base::require<int64_t>(json, "endless_turns", name);
  counts.control_tokens = base::require<int64_t>(json, "control_tokens", name);
  counts.dated_documents = base::require<int64_t>(json, "dated_documents", name);
  counts.lost.count = base::require<int64_t>(json, "lost_documents", name);
  counts.lost.first = base::require<std::vector<std::string>>(json, "lost", name);
  const Json keys = base::require<Json>(json, "unread_keys", name);
  for (const auto& [key, documents] : keys.items()) {
    counts.unread_keys[key] = base::require<int64_t>(keys, key, name);
  }
  return counts;
}

ChatCounts counts_of_notes(const std::string& notes) {
  const Json json = base::parse_json(notes, "the notes of a conversation");
  ChatCounts counts;
  counts.turns = json.value("turns", int64_t{0});
  counts.unlearnt_turns = json.value("unlearnt", int64_t{0});
  counts.rewritten_documents = counts.unlearnt_turns > 0 ? 1 : 0;
  counts.displaced_turns = json.value("displaced", int64_t{0});
  counts.endless_turns = json.value("endless", int64_t{0});
  counts.control_tokens = json.value("control_tokens", int64_t{0});
  counts.dated_documents = json.value("dated", false) ? 1 : 0;
  for (const Json& key : json.value("unread", Json::array())) counts.unread_keys[key.get<std::string>()] = 1;
  return counts;
}

std::string template_text(const ChatOptions& options, const fs::path& tokenizer) {
  const fs::path folder = tokenizer.parent_path();
  const std::string& told = options.chat_template;
  if (!told.empty()) return fs::exists(told) ? base::read_file(told) : named_template(told, folder);
  return fs::exists(folder / kTemplate) ? base::read_file(folder / kTemplate) : "";
}

}  // namespace sluice::corpus
