#include "serve/api.h"

#include <algorithm>
#include <span>
#include <string_view>

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

bool wants_logprobs(const Json& body) {
  if (!body.contains("logprobs")) return false;
  const Json& wanted = body.at("logprobs");
  if (wanted.is_boolean()) return wanted.get<bool>();
  return wanted.is_number_integer();
}

Json parsed(const std::string& body) {
  Json json = base::parse_json(body, "the request's body");
  if (!json.is_object()) throw InputError("the request's body is no JSON object");
  return json;
}

std::string finish_reason(const generate::Said& said) { return said.ended ? "stop" : "length"; }

std::vector<std::string> decoded_one_by_one(const std::vector<int64_t>& ids,
                                            const corpus::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> single;
  for (const int64_t id : ids) single.push_back({static_cast<int32_t>(id)});
  return tokenizer.decode_all(single);
}

// As completions have it, with lists side by side; of the prompt too where it is said.
Json completion_logprobs(const Asked& asked, const Choice& choice, const corpus::Tokenizer& tokenizer) {
  std::vector<int64_t> ids, likeliest;
  Json logprobs = Json::array(), top = Json::array(), offsets = Json::array();
  if (asked.echo) {
    ids = *choice.prompt;
    logprobs.push_back(nullptr);
    top.push_back(nullptr);
    for (const generate::Score& score : choice.said->prompt) likeliest.push_back(score.likeliest);
    const std::vector<std::string> names = decoded_one_by_one(likeliest, tokenizer);
    for (size_t i = 0; i < choice.said->prompt.size(); ++i) {
      const generate::Score& score = choice.said->prompt[i];
      logprobs.push_back(score.log_probability);
      top.push_back({{names[i], score.likeliest_log_probability}});
    }
  }
  const size_t given = ids.size();
  ids.insert(ids.end(), choice.said->tokens.begin(), choice.said->tokens.end());
  const std::vector<std::string> tokens = decoded_one_by_one(ids, tokenizer);
  for (size_t i = 0; i < choice.said->tokens.size(); ++i) {
    logprobs.push_back(choice.said->log_probabilities[i]);
    top.push_back({{tokens[given + i], choice.said->log_probabilities[i]}});
  }
  size_t offset = 0;
  for (const std::string& token : tokens) {
    offsets.push_back(offset);
    offset += token.size();
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
}

Json chat_logprobs(const Choice& choice, const corpus::Tokenizer& tokenizer) {
  Json content = Json::array();
  const std::vector<std::string> tokens = decoded_one_by_one(choice.said->tokens, tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<uint8_t> bytes(tokens[i].begin(), tokens[i].end());
    content.push_back({{"token", tokens[i]},
                       {"logprob", choice.said->log_probabilities[i]},
                       {"bytes", bytes},
                       {"top_logprobs", Json::array()}});
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
  asked.logprobs = wants_logprobs(json);
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
      if (asked.logprobs) json["logprobs"] = chat_logprobs(choice, tokenizer);
    } else {
      const std::vector<int32_t> prompt(choice.prompt->begin(), choice.prompt->end());
      json["text"] = (asked.echo ? tokenizer.decode(prompt) : "") + choice.text;
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

std::string TextSoFar::more(const generate::Said& said, bool finished) {
  std::string whole = cut_at_stop(tokenizer_.decode({said.tokens.begin(), said.tokens.end()}), stops_);
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
