#include "serve/api.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "serve/request_fields.h"

namespace sluice::serve {
namespace {

using base::InputError;
using base::Json;
using base::text;
using http::FieldError;
using http::FieldRule;
using http::Use;
using enum http::Kind;

// The fields of both endpoints: all of OpenAI's, and those that vLLM's and LangChain's clients send. Every
// other field is unknown.
constexpr FieldRule kBoth[] = {
    {"model", kText},
    {"max_tokens", kWhole},
    {"temperature", kNumber},
    {"top_p", kNumber},
    {"top_k", kWhole},
    {"min_p", kNumber},
    {"n", kWhole},
    {"stop", kText | kList},
    {"stop_token_ids", kList},
    {"seed", kWhole},
    {"stream", kFlag},
    {"stream_options", kObject},
    {"logit_bias", kObject},
    {"presence_penalty", kNumber},
    {"frequency_penalty", kNumber},
    {"repetition_penalty", kNumber},
    {"user", kText, Use::kNoEffect},
    {"priority", kWhole, Use::kNoEffect},
    {"request_id", kText, Use::kNoEffect},
    {"length_penalty", kNumber, Use::kNeutralOnly, "1.0"},
    {"skip_special_tokens", kFlag, Use::kNeutralOnly, "true"},
    {"spaces_between_special_tokens", kFlag, Use::kNeutralOnly, "true"},
    {"add_special_tokens", kFlag, Use::kNeutralOnly, "true"},
    {"response_format", kObject, Use::kNeutralOnly, R"({"type": "text"})"},
};
constexpr FieldRule kCompletions[] = {
    {"prompt", kText | kList},
    {"echo", kFlag},
    {"logprobs", kWhole},
    {"best_of", kWhole},
    {"suffix", kText, Use::kNeutralOnly},
};
constexpr FieldRule kChats[] = {
    {"messages", kList},
    {"max_completion_tokens", kWhole},
    {"logprobs", kFlag},
    {"top_logprobs", kWhole},
    {"tools", kList},
    {"tool_choice", kText | kObject},
    {"parallel_tool_calls", kFlag},
    {"documents", kList},
    {"chat_template_kwargs", kObject},
    {"reasoning_effort", kText},
    {"store", kFlag, Use::kNoEffect},
    {"metadata", kObject, Use::kNoEffect},
    {"service_tier", kText, Use::kNoEffect},
    {"safety_identifier", kText, Use::kNoEffect},
    {"prompt_cache_key", kText, Use::kNoEffect},
    {"prompt_cache_retention", kText, Use::kNoEffect},
    {"prediction", kObject, Use::kNoEffect},
    {"modalities", kList, Use::kNeutralOnly, R"(["text"])"},
    {"verbosity", kText, Use::kNeutralOnly, R"("medium")"},
    {"function_call", kText | kObject, Use::kNeutralOnly, R"("none")"},
    {"add_generation_prompt", kFlag, Use::kNeutralOnly, "true"},
};
// Fields passed on to the chat template.
constexpr std::string_view kRendered[] = {"messages", "tools", "documents", "chat_template_kwargs",
                                          "reasoning_effort"};

const std::vector<FieldRule>& rules_of(Endpoint endpoint) {
  const auto joined = [](std::span<const FieldRule> own) {
    std::vector<FieldRule> rules(std::begin(kBoth), std::end(kBoth));
    rules.insert(rules.end(), own.begin(), own.end());
    return rules;
  };
  static const std::vector<FieldRule> completions = joined(kCompletions), chats = joined(kChats);
  return endpoint == Endpoint::kChat ? chats : completions;
}

// A string, a list of token ids, or a list of either.
void read_prompts(const Json& body, const RequestReader& reader, CompletionRequest& request) {
  if (!body.contains("prompt") || body.at("prompt").is_null())
    throw FieldError("prompt", "prompt is missing: give a text, or a list of token ids");
  const Json& prompt = body.at("prompt");
  const bool several = prompt.is_array() && !prompt.empty() && !prompt.front().is_number();
  for (const Json& each : several ? prompt : Json::array({prompt})) {
    if (!each.is_string() && !each.is_array())
      throw FieldError("prompt",
                       text("prompt has ", base::excerpt(each), ": give a text, or a list of token ids"));
    if (std::ssize(request.prompts) == reader.limits.prompts)
      throw FieldError("prompt", text("prompt has more than ", reader.limits.prompts,
                                      " prompts: send them in several requests"));
    request.prompts.push_back(each.is_string() ? encode_field("prompt", each.get<std::string>(),
                                                              *reader.tokenizer, reader.context_length)
                                               : read_token_ids(each, "prompt", reader.vocabulary));
  }
  for (const std::vector<int64_t>& each : request.prompts) {
    if (each.empty()) throw FieldError("prompt", "a prompt has no token: give it some text");
  }
}

void read_messages(const Json& body, const RequestReader& reader, CompletionRequest& request) {
  const corpus::Tokenizer& tokenizer = *reader.tokenizer;
  const Json* const messages = base::find(body, "messages");
  if (messages == nullptr || messages->empty())
    throw FieldError("messages", "messages are missing: give a list of them");
  if (!tokenizer.has_chats())
    throw InputError("this model's tokenizer has no chat template: ask for completions instead");
  Json chat = Json::object();
  for (const std::string_view key : kRendered) {
    const Json* const found = base::find(body, std::string(key));
    if (found != nullptr && !found->is_null() && (key != "tools" || !request.tools.empty()))
      chat[std::string(key)] = *found;
  }
  const std::string rendered = base::json_text(chat);
  require_short("messages", rendered, reader.context_length);
  const corpus::EncodedChat encoded = tokenizer.encode_prompts({&rendered, 1}).front();
  if (!encoded.fault.empty()) throw FieldError("messages", encoded.fault);
  if (encoded.ids.empty()) throw FieldError("messages", "the chat template makes no token of the messages");
  request.prompts.emplace_back(encoded.ids.begin(), encoded.ids.end());
}

// `tool_choice` "none" leaves the tools out. Required calls would need a grammar and are refused.
void read_tools(const Json& body, const RequestReader& reader, CompletionRequest& request) {
  const Json* const choice = base::find(body, "tool_choice");
  const bool told = choice != nullptr && !choice->is_null();
  if (told && *choice != "none" && *choice != "auto")
    throw FieldError("tool_choice", text("tool_choice is ", base::excerpt(*choice),
                                         ", which this server cannot ensure: give \"auto\" or \"none\""));
  const Json* const tools = base::find(body, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty() || (told && *choice == "none")) return;
  if (reader.tool_format == nullptr)
    throw FieldError(
        "tools",
        text("tools are given, and how this model writes calls is not known: leave tools out, or start "
             "the server with --tool-format, one of ",
             tool_format_names()));
  for (const Json& tool : *tools) {
    const Json* const function = tool.is_object() ? base::find(tool, "function") : nullptr;
    const Json* const name =
        function != nullptr && function->is_object() ? base::find(*function, "name") : nullptr;
    if (name == nullptr || !name->is_string())
      throw FieldError("tools", text("tools has ", base::excerpt(tool),
                                     ": give {\"type\": \"function\", \"function\": {\"name\": …}}"));
    request.tools.push_back(name->get<std::string>());
  }
  request.parallel_tool_calls = read_field<bool>(body, "parallel_tool_calls").value_or(true);
}

void read_stops(const Json& body, const RequestReader& reader, CompletionRequest& request) {
  const RequestLimits& limits = reader.limits;
  const Json* const stop = base::find(body, "stop");
  if (stop != nullptr && !stop->is_null()) {
    for (const Json& each : stop->is_array() ? *stop : Json::array({*stop})) {
      if (!each.is_string() || each.get_ref<const std::string&>().empty())
        throw FieldError("stop", text("stop is ", base::excerpt(*stop), ": give a text, or a list of them"));
      request.stops.push_back(each.get<std::string>());
      if (std::ssize(request.stops.back()) > limits.stop_bytes)
        throw FieldError(
            "stop", text("stop has a text of more than ", limits.stop_bytes, " bytes: give a shorter one"));
    }
  }
  const Json* const tokens = base::find(body, "stop_token_ids");
  if (tokens != nullptr && tokens->is_array())
    request.stop_tokens = read_token_ids(*tokens, "stop_token_ids", reader.vocabulary);
  if (std::ssize(request.stops) > limits.stops)
    throw FieldError("stop", text("stop has more than ", limits.stops, " texts: give fewer"));
  if (std::ssize(request.stop_tokens) > limits.stops)
    throw FieldError("stop_token_ids",
                     text("stop_token_ids has more than ", limits.stops, " tokens: give fewer"));
}

// Completions ask by one number, where 0 reports the generated token alone; chats by two keys.
void read_logprobs(const Json& body, CompletionRequest& request) {
  constexpr int64_t kMost = 20;
  const bool chat = request.endpoint == Endpoint::kChat;
  const char* const key = chat ? "top_logprobs" : "logprobs";
  const std::optional<int64_t> number = read_field<int64_t>(body, key);
  request.logprobs = chat ? read_field<bool>(body, "logprobs").value_or(false) : number.has_value();
  if (!number) return;
  require_field_in<int64_t>(key, *number, {0, kMost});
  if (!request.logprobs && *number != 0)
    throw FieldError(key, text(key, " is ", *number, ", but logprobs is not true: set it, too"));
  request.alternatives = *number;
}

std::vector<std::pair<int64_t, double>> read_bias(const Json& body, const RequestReader& reader) {
  constexpr base::Range<double> kRange{-100.0, 100.0};
  std::vector<std::pair<int64_t, double>> bias;
  const Json* const given = base::find(body, "logit_bias");
  if (given == nullptr || given->is_null()) return bias;
  if (std::ssize(*given) > reader.limits.logit_biases)
    throw FieldError("logit_bias", text("logit_bias has ", given->size(), " tokens: give ",
                                        reader.limits.logit_biases, " or fewer"));
  for (const auto& [key, value] : given->items()) {
    const std::optional<int64_t> token = base::parse_integer(key);
    if (!token || *token < 0 || *token >= reader.vocabulary)
      throw FieldError("logit_bias", text("logit_bias has the token ", base::excerpt(Json(key)),
                                          ": give ids from 0 to ", reader.vocabulary - 1));
    if (!value.is_number() || !kRange.holds(value.get<double>()))
      throw FieldError("logit_bias", text("logit_bias of ", key, " is ", base::excerpt(value),
                                          ": give a number from -100 to 100"));
    bias.emplace_back(*token, value.get<double>());
  }
  std::ranges::sort(bias);
  return bias;
}

// Sampling parameters are checked one by one, so that a refusal names its field.
template <typename T>
void read_sampled(const Json& body, const char* field, generate::Sampling& sampling,
                  T generate::Sampling::*member) {
  const std::optional<T> value = read_field<T>(body, field);
  if (!value) return;
  sampling.*member = *value;
  try {
    generate::validate(sampling);
  } catch (const base::InputError& error) {
    throw FieldError(field, error.what());
  }
}

void read_sampling(const Json& body, const RequestReader& reader, uint64_t seed,
                   generate::Sampling& sampling) {
  using generate::Sampling;
  sampling.temperature = 1.0;
  read_sampled(body, "temperature", sampling, &Sampling::temperature);
  read_sampled(body, "top_p", sampling, &Sampling::top_p);
  constexpr int64_t kNoBound = -1;  // vLLM's clients say so
  if (read_field<int64_t>(body, "top_k") != kNoBound) read_sampled(body, "top_k", sampling, &Sampling::top_k);
  read_sampled(body, "min_p", sampling, &Sampling::min_p);
  read_sampled(body, "presence_penalty", sampling, &Sampling::presence_penalty);
  read_sampled(body, "frequency_penalty", sampling, &Sampling::frequency_penalty);
  read_sampled(body, "repetition_penalty", sampling, &Sampling::repetition_penalty);
  sampling.logit_bias = read_bias(body, reader);
  const auto own_seed = read_field<int64_t>(body, "seed");
  sampling.seed = own_seed ? static_cast<uint64_t>(*own_seed) : seed;
}

void read_lengths(const Json& body, CompletionRequest& request) {
  const bool chat = request.endpoint == Endpoint::kChat;
  for (const char* const key : {"max_tokens", "max_completion_tokens"}) {
    const auto most = read_field<int64_t>(body, key);
    if (!most) continue;
    require_field_in<int64_t>(key, *most, {chat ? 1 : 0, int64_t{1} << 30});
    request.max_tokens = most;
  }
}

void read_stream(const Json& body, CompletionRequest& request) {
  constexpr FieldRule kOptions[] = {{"include_usage", kFlag},
                                    {"include_obfuscation", kFlag, Use::kNoEffect},
                                    {"continuous_usage_stats", kFlag, Use::kNeutralOnly}};
  request.stream = read_field<bool>(body, "stream").value_or(false);
  const Json* const options = base::find(body, "stream_options");
  if (options == nullptr || options->is_null()) return;
  try {
    http::check_fields(*options, kOptions);
  } catch (const FieldError& error) {
    throw FieldError("stream_options", text("stream_options: ", error.what()));
  }
  request.stream_usage = read_field<bool>(*options, "include_usage").value_or(false);
  if (request.stream_usage && !request.stream)
    throw FieldError("stream_options", "stream_options are given, but stream is not true: set it, too");
}

void require_together(const Json& body, const CompletionRequest& request, const RequestLimits& limits) {
  if (request.stream && request.echo)
    throw FieldError("echo", "echo is true, and a stream has what is new alone: leave one out");
  if (request.stream && request.max_tokens == 0)
    throw FieldError("max_tokens", "max_tokens is 0, and a stream has what is new alone: leave one out");
  if (request.stream && request.logprobs)
    throw FieldError("logprobs", "logprobs are asked of a stream, which has none: leave one out");
  if (const auto best = read_field<int64_t>(body, "best_of"); best && *best != request.samples)
    throw FieldError("best_of", text("best_of is ", *best, " and n is ", request.samples,
                                     ": give the same, all are answered"));
  if (std::ssize(request.prompts) * request.samples > limits.prompts)
    throw FieldError("n", text("prompts and n make ", std::ssize(request.prompts) * request.samples,
                               " texts: ask for ", limits.prompts, " or fewer at once"));
}

}  // namespace

CompletionRequest RequestReader::read(const std::string& body, Endpoint endpoint, uint64_t seed) const {
  const Json json = read_body(body, rules_of(endpoint), limits.json_entries);
  CompletionRequest request{.endpoint = endpoint};
  request.adapter = read_model(json, model, adapters);
  read_lengths(json, request);
  read_sampling(json, *this, seed, request.sampling);
  const int64_t samples = read_field<int64_t>(json, "n").value_or(1);
  require_field_in<int64_t>("n", samples, {1, 128});
  request.samples = static_cast<int>(samples);
  read_stops(json, *this, request);
  read_stream(json, request);
  read_logprobs(json, request);
  if (endpoint == Endpoint::kChat) {
    read_tools(json, *this, request);
    read_messages(json, *this, request);
  } else {
    request.echo = read_field<bool>(json, "echo").value_or(false);
    read_prompts(json, *this, request);
  }
  require_together(json, request, limits);
  return request;
}

}  // namespace sluice::serve
