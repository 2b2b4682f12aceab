#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "corpus/continuation.h"
#include "serve/api.h"

namespace sluice::serve {
namespace {

using base::Json;
using base::text;

std::string finish_reason(const Choice& choice) {
  if (!choice.calls.empty()) return "tool_calls";
  return choice.output->finish_reason ? "stop" : "length";
}

int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Without the begin token, which the tokenizer added.
std::vector<int64_t> without_begin(const std::vector<int64_t>& prompt, const corpus::Tokenizer& tokenizer) {
  const bool begins = !prompt.empty() && tokenizer.begin_id() >= 0 && prompt.front() == tokenizer.begin_id();
  return {prompt.begin() + (begins ? 1 : 0), prompt.end()};
}

// A token in a response's logprobs.
struct ReportedToken {
  std::string piece;                      // the text that it adds
  std::optional<double> log_probability;  // nothing: the first token of a prompt
  std::vector<generate::Alternative> alternatives;
  std::vector<std::string> names;  // the alternatives'
};

// The output's tokens, after those of the prompt if the response repeats it.
std::vector<ReportedToken> reported_tokens(const CompletionRequest& request, const Choice& choice,
                                           const corpus::Tokenizer& tokenizer) {
  const generate::Output& output = *choice.output;
  const std::vector<int64_t> given = request.echo ? *choice.prompt : std::vector<int64_t>();
  std::vector<int64_t> ids = request.echo ? without_begin(given, tokenizer) : given;
  const size_t begins = given.size() - ids.size();
  ids.insert(ids.end(), output.tokens.begin(), output.tokens.end());
  const std::vector<int64_t> none;
  const std::vector<std::string> pieces =
      corpus::Behind(tokenizer, request.echo ? none : *choice.prompt).pieces(ids);
  std::vector<ReportedToken> tokens(begins);
  for (const std::string& piece : pieces) tokens.push_back({piece, {}, {}, {}});
  for (size_t i = 0; request.echo && i < output.prompt_logprobs.size(); ++i) {
    tokens[i + 1].log_probability = output.prompt_logprobs[i].log_probability;
    tokens[i + 1].alternatives = output.prompt_logprobs[i].alternatives;
  }
  for (size_t i = 0; i < output.tokens.size(); ++i) {
    tokens[given.size() + i].log_probability = output.log_probabilities[i];
    if (i < output.alternatives.size()) tokens[given.size() + i].alternatives = output.alternatives[i];
  }
  return tokens;
}

// Names the alternatives by the text that they would add at their positions.
void name_alternatives(std::vector<ReportedToken>& tokens, const CompletionRequest& request,
                       const Choice& choice, const corpus::Tokenizer& tokenizer) {
  std::vector<int64_t> ids = *choice.prompt;
  ids.insert(ids.end(), choice.output->tokens.begin(), choice.output->tokens.end());
  size_t place = request.echo ? 0 : choice.prompt->size();
  std::vector<corpus::Continuation> places;
  for (const ReportedToken& each : tokens) {
    const std::span<const int64_t> before(ids.data(), place++);
    for (const generate::Alternative& other : each.alternatives)
      places.push_back(corpus::continuation_of(tokenizer, before, std::vector<int64_t>{other.token}));
  }
  std::vector<std::string> names = corpus::texts_behind(tokenizer, places);
  size_t next = 0;
  for (ReportedToken& each : tokens) {
    for (size_t i = 0; i < each.alternatives.size(); ++i) each.names.push_back(std::move(names[next++]));
  }
}

// Log-probabilities by name, the likeliest first. A name that is empty or taken, as parts of characters are,
// becomes the token's id.
Json named(const ReportedToken& token) {
  Json json = Json::object();
  for (size_t i = 0; i < token.alternatives.size(); ++i) {
    const bool is_new = !token.names[i].empty() && !json.contains(token.names[i]);
    json[is_new ? token.names[i] : text("token_id:", token.alternatives[i].token)] =
        token.alternatives[i].log_probability;
  }
  return json;
}

// Without the tokens after a stop string.
std::vector<ReportedToken> shown_tokens(const CompletionRequest& request, const Choice& choice,
                                        const corpus::Tokenizer& tokenizer) {
  std::vector<ReportedToken> tokens = reported_tokens(request, choice, tokenizer);
  size_t bytes = 0;
  const size_t given = tokens.size() - choice.output->tokens.size();
  for (size_t i = given; i < tokens.size(); ++i) bytes += tokens[i].piece.size();
  while (bytes > choice.text.size() && bytes - tokens.back().piece.size() >= choice.text.size()) {
    bytes -= tokens.back().piece.size();
    tokens.pop_back();
  }
  name_alternatives(tokens, request, choice, tokenizer);
  return tokens;
}

// The format of completions: parallel lists, the prompt included if it is repeated.
Json completion_logprobs(const CompletionRequest& request, const Choice& choice,
                         const corpus::Tokenizer& tokenizer) {
  Json tokens = Json::array(), logprobs = Json::array(), top = Json::array(), offsets = Json::array();
  int64_t offset = 0;
  for (const ReportedToken& token : shown_tokens(request, choice, tokenizer)) {
    tokens.push_back(token.piece);
    logprobs.push_back(token.log_probability ? Json(*token.log_probability) : Json());
    top.push_back(token.log_probability ? named(token) : Json());
    offsets.push_back(offset);
    offset += characters(token.piece);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", top}, {"text_offset", offsets}};
}

Json chat_token(const std::string& token, double log_probability) {
  return {{"token", token},
          {"logprob", log_probability},
          {"bytes", std::vector<uint8_t>(token.begin(), token.end())}};
}

Json chat_logprobs(const CompletionRequest& request, const Choice& choice,
                   const corpus::Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const ReportedToken& token : shown_tokens(request, choice, tokenizer)) {
    Json& json = content.emplace_back(chat_token(token.piece, *token.log_probability));
    json["top_logprobs"] = Json::array();
    for (size_t i = 0; i < token.alternatives.size(); ++i)
      json["top_logprobs"].push_back(chat_token(token.names[i], token.alternatives[i].log_probability));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

Json head_json(const CompletionRequest& request, const AnswerHead& head, std::string_view kind_of_chats) {
  const bool chat = request.endpoint == Endpoint::kChat;
  return {{"id", head.id},
          {"object", chat ? kind_of_chats : "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

Json calls_json(const AnswerHead& head, const Choice& choice) {
  Json calls = Json::array();
  for (size_t i = 0; i < choice.calls.size(); ++i) {
    calls.push_back(
        {{"id", text("call_", head.id, "-", choice.index, "-", i)},
         {"type", "function"},
         {"function", {{"name", choice.calls[i].name}, {"arguments", choice.calls[i].arguments}}}});
  }
  return calls;
}

Json message_json(const AnswerHead& head, const Choice& choice) {
  Json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  message["tool_calls"] = calls_json(head, choice);
  return message;
}

Json usage_json(const CompletionRequest& request, int64_t completion_tokens) {
  int64_t given = 0;
  for (const std::vector<int64_t>& prompt : request.prompts) given += std::ssize(prompt);
  return {{"prompt_tokens", given},
          {"completion_tokens", completion_tokens},
          {"total_tokens", given + completion_tokens}};
}

}  // namespace

Json response_json(const CompletionRequest& request, const AnswerHead& head,
                   const std::vector<Choice>& choices, const corpus::Tokenizer& tokenizer) {
  const bool chat = request.endpoint == Endpoint::kChat;
  Json list = Json::array();
  int64_t completion_tokens = 0;
  for (const Choice& choice : choices) {
    completion_tokens += std::ssize(choice.output->tokens);
    Json json = {{"index", choice.index}, {"logprobs", nullptr}, {"finish_reason", finish_reason(choice)}};
    if (chat) {
      json["message"] = message_json(head, choice);
      if (request.logprobs) json["logprobs"] = chat_logprobs(request, choice, tokenizer);
    } else {
      const std::vector<int64_t> prompt = without_begin(*choice.prompt, tokenizer);
      json["text"] = (request.echo ? tokenizer.decode({prompt.begin(), prompt.end()}) : "") + choice.text;
      if (request.logprobs) json["logprobs"] = completion_logprobs(request, choice, tokenizer);
    }
    list.push_back(std::move(json));
  }
  Json answer = head_json(request, head, "chat.completion");
  answer["choices"] = list;
  answer["usage"] = usage_json(request, completion_tokens);
  return answer;
}

Json chunk_json(const CompletionRequest& request, const AnswerHead& head, const Choice& choice, bool first) {
  Json json = {{"index", choice.index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (choice.finished) json["finish_reason"] = finish_reason(choice);
  if (request.endpoint == Endpoint::kChat) {
    Json delta = Json::object();
    if (first) delta["role"] = "assistant";
    if (first || !choice.text.empty()) delta["content"] = choice.text;
    if (!choice.calls.empty()) {
      delta["tool_calls"] = calls_json(head, choice);
      for (size_t i = 0; i < choice.calls.size(); ++i) delta["tool_calls"][i]["index"] = i;
    }
    json["delta"] = delta;
  } else {
    json["text"] = choice.text;
  }
  Json chunk = head_json(request, head, "chat.completion.chunk");
  chunk["choices"] = Json::array({json});
  if (request.stream_usage) chunk["usage"] = nullptr;
  return chunk;
}

Json usage_chunk_json(const CompletionRequest& request, const AnswerHead& head, int64_t completion_tokens) {
  Json chunk = head_json(request, head, "chat.completion.chunk");
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_json(request, completion_tokens);
  return chunk;
}

Json error_json(const std::string& message, const std::string& type, const std::string& field,
                const std::string& code) {
  const auto or_null = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  return {
      {"error", {{"message", message}, {"type", type}, {"param", or_null(field)}, {"code", or_null(code)}}}};
}

}  // namespace sluice::serve
