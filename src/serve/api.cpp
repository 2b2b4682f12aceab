#include "serve/api.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::serve {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kName = "the request";
constexpr const char* kReplacement = "\xEF\xBF\xBD";  // of bytes that are no letter yet

// Keys that change nothing of what is said.
constexpr std::string_view kIgnored[] = {"model", "user",     "stream_options",
                                         "store", "metadata", "service_tier"};
constexpr std::string_view kRead[] = {"prompt",      "messages", "max_tokens",  "max_completion_tokens",
                                      "temperature", "top_p",    "top_k",       "min_p",
                                      "n",           "stop",     "seed",        "stream",
                                      "echo",        "logprobs", "top_logprobs"};

// Likewise of chats alone.
constexpr std::string_view kReadOfChats[] = {"documents", "chat_template_kwargs"};

bool is_neutral(const Json& value) {
  return value.is_null() || value == false || value == 0 || (value.is_structured() && value.empty());
}

void refuse_unknown(const Json& body, Endpoint endpoint) {
  for (const auto& [key, value] : body.items()) {
    const auto is = [&](std::string_view known) { return known == key; };
    if (endpoint == Endpoint::kChat && std::ranges::any_of(kReadOfChats, is)) continue;
    if (std::ranges::any_of(kRead, is) || std::ranges::any_of(kIgnored, is) || is_neutral(value)) continue;
    if (key == "best_of" && value == body.value("n", Json(1))) continue;
    throw InputError(
        text(key, " is ", base::excerpt(value), ", which this server does not know: leave it out"));
  }
}

template <typename T>
std::optional<T> read(const Json& body, const char* key) {
  if (!body.contains(key) || body.at(key).is_null()) return std::nullopt;
  return base::require<T>(body, key, kName);
}

std::vector<int64_t> ids_of(const Json& list, int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (const Json& each : list) {
    const bool fits = each.is_number_integer() && each >= 0 && each < vocabulary;
    if (!fits)
      throw InputError(text("prompt has ", base::excerpt(each), ": give ids from 0 to ", vocabulary - 1));
    ids.push_back(each.get<int64_t>());
  }
  return ids;
}

std::vector<int64_t> ids_of(const std::string& prompt, const corpus::Tokenizer& tokenizer) {
  std::vector<int64_t> ids;
  if (tokenizer.begin_id() >= 0) ids.push_back(tokenizer.begin_id());
  for (const int32_t id : tokenizer.encode(prompt)) ids.push_back(id);
  return ids;
}

// A text, a list of ids, or a list of either.
void read_prompts(const Json& body, const corpus::Tokenizer& tokenizer, int64_t vocabulary, Asked& asked) {
  if (!body.contains("prompt")) throw InputError("prompt is missing: give a text, or a list of token ids");
  const Json& prompt = body.at("prompt");
  const bool several = prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
  for (const Json& each : several ? prompt : Json::array({prompt})) {
    if (!each.is_string() && !each.is_array())
      throw InputError(text("prompt is ", base::excerpt(each), ": give a text, or a list of token ids"));
    asked.prompts.push_back(each.is_string() ? ids_of(each.get<std::string>(), tokenizer)
                                             : ids_of(each, vocabulary));
  }
}

void read_messages(const Json& body, const corpus::Tokenizer& tokenizer, Asked& asked) {
  if (!body.contains("messages")) throw InputError("messages are missing: give a list of them");
  if (!tokenizer.has_chats())
    throw InputError("this model's tokenizer has no chat template: ask for completions instead");
  // Arguments of the template may stand beside the messages.
  const std::string chat = base::json_text(body);
  const corpus::EncodedChat encoded = tokenizer.encode_prompts({&chat, 1}).front();
  if (!encoded.fault.empty()) throw InputError(encoded.fault);
  asked.prompts.emplace_back(encoded.ids.begin(), encoded.ids.end());
}

std::vector<std::string> stops_of(const Json& body) {
  if (!body.contains("stop") || body.at("stop").is_null()) return {};
  const Json& stop = body.at("stop");
  std::vector<std::string> stops;
  for (const Json& each : stop.is_array() ? stop : Json::array({stop})) {
    if (!each.is_string() || each.get<std::string>().empty())
      throw InputError(text("stop is ", base::excerpt(stop), ": give a text, or a list of them"));
    stops.push_back(each.get<std::string>());
  }
  return stops;
}

// Completions ask by a number, 0 of which is the tokens' own alone; chats by two keys.
void read_logprobs(const Json& body, Asked& asked) {
  constexpr int64_t kMost = 20;
  const auto is_number = [&](const char* key) {
    return body.contains(key) && body.at(key).is_number_integer();
  };
  const char* const key = asked.endpoint == Endpoint::kChat ? "top_logprobs" : "logprobs";
  asked.logprobs = body.contains("logprobs") && (body.at("logprobs") == true || is_number("logprobs"));
  if (!is_number(key)) return;
  if (!asked.logprobs && body.at(key) != 0)
    throw InputError(text(key, " is ", body.at(key).dump(), ", but logprobs is not true: set it, too"));
  asked.alternatives = body.at(key).get<int64_t>();
  base::require_in_range<int64_t>(key, asked.alternatives, {0, kMost});
}

Json parsed(const std::string& body) {
  Json json = base::parse_json(body, "the request's body");
  if (!json.is_object()) throw InputError("the request's body is no JSON object");
  return json;
}

std::string finish_reason(const generate::Said& said) { return said.ended ? "stop" : "length"; }

int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Without the token that begins documents: the prompt as it was given, where it was a text.
std::vector<int64_t> without_begin(const std::vector<int64_t>& prompt, const corpus::Tokenizer& tokenizer) {
  const bool begins = !prompt.empty() && tokenizer.begin_id() >= 0 && prompt.front() == tokenizer.begin_id();
  return {prompt.begin() + (begins ? 1 : 0), prompt.end()};
}

// What is told of a token, as far as it is known.
struct Told {
  std::string piece;                      // that it adds to the text
  std::optional<double> log_probability;  // nothing: nobody said it
  std::vector<generate::Alternative> others;
  std::vector<std::string> names;  // of those
};

// Of those that are said, and of the prompt's in front where they are too.
std::vector<Told> told_of(const Asked& asked, const Choice& choice, const corpus::Tokenizer& tokenizer) {
  const generate::Said& said = *choice.said;
  const std::vector<int64_t> given = asked.echo ? *choice.prompt : std::vector<int64_t>();
  std::vector<int64_t> ids = asked.echo ? without_begin(given, tokenizer) : given;
  const size_t begins = given.size() - ids.size();
  ids.insert(ids.end(), said.tokens.begin(), said.tokens.end());
  const std::vector<int64_t> none;
  const std::vector<std::string> pieces =
      corpus::Behind(tokenizer, asked.echo ? none : *choice.prompt).pieces(ids);
  std::vector<Told> told(begins);
  for (const std::string& piece : pieces) told.push_back({piece, {}, {}, {}});
  for (size_t i = 0; asked.echo && i < said.prompt.size(); ++i) {
    told[i + 1].log_probability = said.prompt[i].log_probability;
    told[i + 1].others = said.prompt[i].alternatives;
  }
  for (size_t i = 0; i < said.tokens.size(); ++i) {
    told[given.size() + i].log_probability = said.log_probabilities[i];
    if (i < said.alternatives.size()) told[given.size() + i].others = said.alternatives[i];
  }
  return told;
}

// Names the others as they would be said at their places.
void name_others(std::vector<Told>& told, const Asked& asked, const Choice& choice,
                 const corpus::Tokenizer& tokenizer) {
  std::vector<int64_t> ids = *choice.prompt;
  ids.insert(ids.end(), choice.said->tokens.begin(), choice.said->tokens.end());
  size_t place = asked.echo ? 0 : choice.prompt->size();
  std::vector<corpus::Continuation> places;
  for (const Told& each : told) {
    const std::span<const int64_t> before(ids.data(), place++);
    for (const generate::Alternative& other : each.others)
      places.push_back(corpus::continuation_of(tokenizer, before, std::vector<int64_t>{other.token}));
  }
  std::vector<std::string> names = corpus::texts_behind(tokenizer, places);
  size_t next = 0;
  for (Told& each : told) {
    for (size_t i = 0; i < each.others.size(); ++i) each.names.push_back(std::move(names[next++]));
  }
}

// By name, the likeliest first; what is not told apart by its name, parts of letters say, by its id.
Json named(const Told& told) {
  Json json = Json::object();
  for (size_t i = 0; i < told.others.size(); ++i) {
    const bool is_new = !told.names[i].empty() && !json.contains(told.names[i]);
    json[is_new ? told.names[i] : text("token_id:", told.others[i].token)] = told.others[i].log_probability;
  }
  return json;
}

// Without what a stop took away.
std::vector<Told> shown_of(const Asked& asked, const Choice& choice, const corpus::Tokenizer& tokenizer) {
  std::vector<Told> told = told_of(asked, choice, tokenizer);
  size_t said = 0;
  const size_t given = told.size() - choice.said->tokens.size();
  for (size_t i = given; i < told.size(); ++i) said += told[i].piece.size();
  while (said > choice.text.size() && said - told.back().piece.size() >= choice.text.size()) {
    said -= told.back().piece.size();
    told.pop_back();
  }
  name_others(told, asked, choice, tokenizer);
  return told;
}

// As completions have it, with lists side by side; of the prompt too where it is said.
Json completion_logprobs(const Asked& asked, const Choice& choice, const corpus::Tokenizer& tokenizer) {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
  int64_t offset = 0;
  for (const Told& told : shown_of(asked, choice, tokenizer)) {
    tokens.push_back(told.piece);
    logprobs.push_back(told.log_probability ? Json(*told.log_probability) : Json());
    top.push_back(told.log_probability ? named(told) : Json());
    offsets.push_back(offset);
    offset += characters(told.piece);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
}

Json chat_token(const std::string& token, double log_probability) {
  return {{"token", token},
          {"logprob", log_probability},
          {"bytes", std::vector<uint8_t>(token.begin(), token.end())}};
}

Json chat_logprobs(const Asked& asked, const Choice& choice, const corpus::Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const Told& told : shown_of(asked, choice, tokenizer)) {
    Json& json = content.emplace_back(chat_token(told.piece, *told.log_probability));
    json["top_logprobs"] = Json::array();
    for (size_t i = 0; i < told.others.size(); ++i)
      json["top_logprobs"].push_back(chat_token(told.names[i], told.others[i].log_probability));
  }
  return {{"content", content}};
}

Json head_json(const Asked& asked, const std::string& id, const std::string& model, int64_t created,
               bool chunk) {
  const bool chat = asked.endpoint == Endpoint::kChat;
  return {{"id", id},
          {"object", !chat   ? "text_completion"
                     : chunk ? "chat.completion.chunk"
                             : "chat.completion"},
          {"created", created},
          {"model", model}};
}

}  // namespace

Asked read_request(const std::string& body, Endpoint endpoint, const corpus::Tokenizer& tokenizer,
                   int64_t vocabulary, uint64_t seed) {
  const Json json = parsed(body);
  refuse_unknown(json, endpoint);
  Asked asked{.endpoint = endpoint};
  if (endpoint == Endpoint::kChat) {
    read_messages(json, tokenizer, asked);
  } else {
    read_prompts(json, tokenizer, vocabulary, asked);
  }
  for (const std::vector<int64_t>& prompt : asked.prompts) {
    if (prompt.empty()) throw InputError("a prompt has no token: give it some text");
  }
  asked.most_tokens = read<int64_t>(json, "max_tokens");
  if (const auto most = read<int64_t>(json, "max_completion_tokens")) asked.most_tokens = most;
  if (asked.most_tokens) base::require_in_range("max_tokens", *asked.most_tokens, {0, int64_t{1} << 30});
  asked.sampling.temperature = read<double>(json, "temperature").value_or(1.0);
  asked.sampling.top_p = read<double>(json, "top_p").value_or(1.0);
  asked.sampling.top_k = std::max<int64_t>(0, read<int64_t>(json, "top_k").value_or(0));
  asked.sampling.min_p = read<double>(json, "min_p").value_or(0.0);
  const auto own_seed = read<int64_t>(json, "seed");
  asked.sampling.seed = own_seed ? static_cast<uint64_t>(*own_seed) : seed;
  generate::validate(asked.sampling);
  asked.samples = static_cast<int>(read<int64_t>(json, "n").value_or(1));
  base::require_in_range<int64_t>("n", asked.samples, {1, 128});
  asked.stops = stops_of(json);
  asked.stream = read<bool>(json, "stream").value_or(false);
  asked.echo = endpoint == Endpoint::kCompletions && read<bool>(json, "echo").value_or(false);
  read_logprobs(json, asked);
  if (asked.stream && asked.echo)
    throw InputError("echo is true, and a stream has what is new alone: leave one out");
  if (asked.stream && asked.logprobs)
    throw InputError("logprobs are asked of a stream, which has none: leave one out");
  return asked;
}

Json answer_json(const Asked& asked, const std::string& id, const std::string& model, int64_t created,
                 const std::vector<Choice>& choices, const corpus::Tokenizer& tokenizer) {
  const bool chat = asked.endpoint == Endpoint::kChat;
  Json list = Json::array();
  int64_t said = 0, given = 0;
  for (const std::vector<int64_t>& prompt : asked.prompts) given += static_cast<int64_t>(prompt.size());
  for (const Choice& choice : choices) {
    said += static_cast<int64_t>(choice.said->tokens.size());
    Json json = {
        {"index", choice.index}, {"logprobs", nullptr}, {"finish_reason", finish_reason(*choice.said)}};
    if (chat) {
      json["message"] = {{"role", "assistant"}, {"content", choice.text}};
      if (asked.logprobs) json["logprobs"] = chat_logprobs(asked, choice, tokenizer);
    } else {
      const std::vector<int64_t> prompt = without_begin(*choice.prompt, tokenizer);
      json["text"] = (asked.echo ? tokenizer.decode({prompt.begin(), prompt.end()}) : "") + choice.text;
      if (asked.logprobs) json["logprobs"] = completion_logprobs(asked, choice, tokenizer);
    }
    list.push_back(std::move(json));
  }
  Json answer = head_json(asked, id, model, created, /*chunk=*/false);
  answer["choices"] = list;
  answer["usage"] = {{"prompt_tokens", given}, {"completion_tokens", said}, {"total_tokens", given + said}};
  return answer;
}

Json chunk_json(const Asked& asked, const std::string& id, const std::string& model, int64_t created,
                const Choice& choice, bool first) {
  Json json = {{"index", choice.index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (choice.finished) json["finish_reason"] = finish_reason(*choice.said);
  if (asked.endpoint == Endpoint::kChat) {
    Json delta = Json::object();
    if (first) delta["role"] = "assistant";
    if (first || !choice.text.empty()) delta["content"] = choice.text;
    json["delta"] = delta;
  } else {
    json["text"] = choice.text;
  }
  Json chunk = head_json(asked, id, model, created, /*chunk=*/true);
  chunk["choices"] = Json::array({json});
  return chunk;
}

Json error_json(const std::string& message, const std::string& type) {
  return {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}};
}

std::string cut_at_stop(const std::string& whole, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, whole.find(stop));
  return whole.substr(0, first);
}

std::function<bool(const generate::Said& said)> ends_at_stop(const corpus::Tokenizer& tokenizer,
                                                             const std::vector<int64_t>& prompt,
                                                             std::vector<std::string> stops) {
  return [behind = corpus::Behind(tokenizer, prompt), stops = std::move(stops)](const generate::Said& said) {
    const std::string whole = behind.text(said.tokens);
    return cut_at_stop(whole, stops).size() < whole.size();
  };
}

std::string TextSoFar::more(const generate::Said& said, bool finished) {
  std::string whole = cut_at_stop(behind_.text(said.tokens), stops_);
  if (!finished) {
    while (whole.ends_with(kReplacement)) whole.resize(whole.size() - std::string_view(kReplacement).size());
    size_t held = 0;
    for (const std::string& stop : stops_) {
      for (size_t length = std::min(stop.size() - 1, whole.size()); length > held; --length) {
        if (whole.ends_with(stop.substr(0, length))) held = length;
      }
    }
    whole.resize(whole.size() - held);
  }
  if (whole.size() <= shown_) return "";
  std::string more = whole.substr(shown_);
  shown_ = whole.size();
  return more;
}

}  // namespace sluice::serve
