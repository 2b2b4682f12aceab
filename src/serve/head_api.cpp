#include "serve/head_api.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
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

// The fields that all of these endpoints take.
constexpr FieldRule kCommon[] = {
    {"model", kText},
    {"truncate_prompt_tokens", kWhole},
    {"user", kText, Use::kNoEffect},
    {"priority", kWhole, Use::kNoEffect},
    {"request_id", kText, Use::kNoEffect},
    {"add_special_tokens", kFlag},
};
constexpr FieldRule kInputs[] = {{"input", kText | kList},
                                 {"messages", kList},
                                 {"chat_template_kwargs", kObject},
                                 {"encoding_format", kText}};
constexpr FieldRule kEmbeddings[] = {{"dimensions", kWhole}, {"normalize", kFlag}};
constexpr FieldRule kActivated[] = {{"use_activation", kFlag}};
constexpr FieldRule kScores[] = {{"text_1", kText | kList},  {"text_2", kText | kList},
                                 {"data_1", kText | kList},  {"data_2", kText | kList},
                                 {"queries", kText | kList}, {"documents", kText | kList}};
constexpr FieldRule kRanks[] = {{"query", kText},
                                {"documents", kList},
                                {"top_n", kWhole},
                                {"return_documents", kFlag},
                                {"max_chunks_per_doc", kWhole, Use::kNeutralOnly, "1"},
                                {"max_tokens_per_doc", kWhole, Use::kNeutralOnly},
                                {"rank_fields", kList, Use::kNeutralOnly, R"(["text"])"}};
constexpr std::pair<std::string_view, HeadEndpoint> kPaths[] = {{"/embeddings", HeadEndpoint::kEmbeddings},
                                                                {"/pooling", HeadEndpoint::kPooling},
                                                                {"/classify", HeadEndpoint::kClassify},
                                                                {"/score", HeadEndpoint::kScore},
                                                                {"/rerank", HeadEndpoint::kRerank}};

std::vector<FieldRule> rules_of(HeadEndpoint endpoint) {
  std::vector<FieldRule> rules(std::begin(kCommon), std::end(kCommon));
  const auto add = [&](std::span<const FieldRule> more) {
    rules.insert(rules.end(), more.begin(), more.end());
  };
  if (endpoint == HeadEndpoint::kScore) {
    add(kScores);
  } else if (endpoint == HeadEndpoint::kRerank) {
    add(kRanks);
  } else {
    add(kInputs);
  }
  add(endpoint == HeadEndpoint::kEmbeddings ? std::span<const FieldRule>(kEmbeddings) : kActivated);
  return rules;
}

// A text, or the ids of its tokens.
struct Input {
  std::string text;
  std::vector<int64_t> ids;
  std::string name;  // "input", "documents[3]"
};

Input input_of(const Json& told, const char* field, std::string name, int64_t vocabulary) {
  if (told.is_string()) return {told.get<std::string>(), {}, std::move(name)};
  const Json* const own = told.is_object() ? base::find(told, "text") : nullptr;
  if (own != nullptr && own->is_string()) return {own->get<std::string>(), {}, std::move(name)};
  const bool ids = told.is_array() && !told.empty() && vocabulary > 0;
  if (!ids)
    throw FieldError(field, text(name, " is ", base::excerpt(told), ": give a text",
                                 vocabulary > 0 ? ", or a list of token ids" : ""));
  return {"", read_token_ids(told, field, vocabulary), std::move(name)};
}

// One or several inputs; `vocabulary` 0: texts only.
std::vector<Input> inputs_of(const Json& told, const char* field, int64_t vocabulary, int64_t most) {
  if (told.is_array() && told.empty()) throw FieldError(field, text(field, " is empty: give a text"));
  const bool several = told.is_array() && !told.front().is_number();
  if (!several) return {input_of(told, field, field, vocabulary)};
  if (std::ssize(told) > most)
    throw FieldError(field, text(field, " has ", told.size(), " texts, more than ", most,
                                 ": send them in several requests"));
  std::vector<Input> inputs;
  for (const Json& each : told)
    inputs.push_back(input_of(each, field, text(field, "[", inputs.size(), "]"), vocabulary));
  return inputs;
}

// The first of these fields that is present.
const char* present_of(const Json& body, std::initializer_list<const char*> fields) {
  for (const char* const field : fields) {
    const Json* const found = base::find(body, field);
    if (found != nullptr && !found->is_null()) return field;
  }
  throw FieldError(*fields.begin(), text(*fields.begin(), " is missing: give a text, or a list of them"));
}

class RequestBuilder {
 public:
  RequestBuilder(const HeadRequestReader& reader, const Json& body, HeadEndpoint endpoint)
      : reader_(reader),
        body_(body),
        endpoint_(endpoint),
        ends_(read_field<bool>(body, "add_special_tokens").value_or(true)) {
    request_.endpoint = endpoint;
    request_.activated =
        read_field<bool>(body, "use_activation").value_or(endpoint != HeadEndpoint::kPooling);
  }

  HeadRequest build() {
    if (endpoint_ == HeadEndpoint::kScore) {
      const char* const first = present_of(body_, {"text_1", "data_1", "queries"});
      const char* const second = present_of(body_, {"text_2", "data_2", "documents"});
      read_pairs(texts(first), texts(second), second);
    } else if (endpoint_ == HeadEndpoint::kRerank) {
      read_ranks();
    } else {
      read_form();
      const Json* const messages = base::find(body_, "messages");
      messages != nullptr && !messages->is_null() ? read_messages() : read_inputs();
      require_few_numbers();
    }
    return std::move(request_);
  }

 private:
  std::vector<Input> texts(const char* field) const {
    return inputs_of(body_.at(field), field, 0, reader_.limits.prompts);
  }

  void read_form() {
    const std::string form = read_field<std::string>(body_, "encoding_format").value_or("float");
    if (form != "float" && form != "base64")
      throw FieldError("encoding_format", text("encoding_format is '", form, "': give float or base64"));
    request_.base64 = form == "base64";
    request_.normalized = read_field<bool>(body_, "normalize").value_or(true);
    request_.dimensions = read_field<int64_t>(body_, "dimensions");
    if (request_.dimensions)
      require_field_in<int64_t>("dimensions", *request_.dimensions, {1, reader_.head.width});
  }

  void read_inputs() {
    const char* const field = present_of(body_, {"input"});
    add_texts(inputs_of(body_.at(field), field, reader_.vocabulary, reader_.limits.prompts), field);
  }

  void read_messages() {
    if (base::find(body_, "input") != nullptr && !body_.at("input").is_null())
      throw FieldError("messages", "messages and input are both given: leave one out");
    if (!reader_.tokenizer->has_chats())
      throw InputError("this model's tokenizer has no chat template: give input in place of messages");
    Json chat = {{"messages", body_.at("messages")}};
    if (const Json* const more = base::find(body_, "chat_template_kwargs");
        more != nullptr && !more->is_null())
      chat["chat_template_kwargs"] = *more;
    const std::string rendered = base::json_text(chat);
    require_short("messages", rendered, reader_.context_length);
    const corpus::EncodedChat encoded = reader_.tokenizer->encode_chats({&rendered, 1}).front();
    if (!encoded.fault.empty()) throw FieldError("messages", encoded.fault);
    add_tokens({encoded.ids.begin(), encoded.ids.end()}, "messages", "messages");
  }

  // Embeddings are compared; a head of one number gets each pair as one text.
  void read_pairs(const std::vector<Input>& queries, const std::vector<Input>& documents, const char* field) {
    if (queries.size() != 1 && queries.size() != documents.size())
      throw FieldError(field, text(field, " has ", documents.size(), " texts beside ", queries.size(),
                                   ": give as many, or one to compare all with"));
    request_.queries = std::ssize(queries);
    for (const Input& each : documents) request_.documents.push_back(each.text);
    if (reader_.head.output == ServedHead::Output::kEmbedding) {
      std::vector<Input> all = queries;
      all.insert(all.end(), documents.begin(), documents.end());
      return add_texts(all, field);
    }
    std::vector<Input> pairs;
    for (size_t i = 0; i < documents.size(); ++i) {
      const Input& query = queries[queries.size() == 1 ? 0 : i];
      require_text(query, field);
      require_text(documents[i], field);
      pairs.push_back({pair_of(query.text, documents[i].text), {}, documents[i].name});
    }
    add_texts(pairs, field);
  }

  void read_ranks() {
    present_of(body_, {"query"});
    const char* const field = present_of(body_, {"documents"});
    const std::vector<Input> documents = texts(field);
    read_pairs(texts("query"), documents, field);
    request_.top_n = read_field<int64_t>(body_, "top_n");
    if (request_.top_n) require_field_in<int64_t>("top_n", *request_.top_n, {0, int64_t{1} << 30});
    request_.return_documents = read_field<bool>(body_, "return_documents").value_or(true);
  }

  std::string pair_of(const std::string& query, const std::string& document) const {
    const std::string& form = reader_.pair_template;
    const std::array<std::pair<std::string_view, const std::string*>, 2> parts{
        {{"{query}", &query}, {"{document}", &document}}};
    std::string pair;
    for (size_t at = 0; at < form.size();) {
      const auto part = std::ranges::find_if(
          parts, [&](const auto& each) { return form.compare(at, each.first.size(), each.first) == 0; });
      pair += part == parts.end() ? std::string(1, form[at]) : *part->second;
      at += part == parts.end() ? 1 : part->first.size();
    }
    return pair;
  }

  static void require_text(const Input& input, const char* field) {
    if (!input.ids.empty() || !base::trim(input.text).empty()) return;
    throw FieldError(field,
                     text(input.name, " is an empty text, which has no place and no score: leave it out"));
  }

  void add_texts(const std::vector<Input>& inputs, const char* field) {
    if (std::ssize(inputs) > reader_.limits.prompts)
      throw FieldError(field, text(field, " has ", inputs.size(), " texts, more than ",
                                   reader_.limits.prompts, ": send them in several requests"));
    std::vector<std::string> told;
    for (const Input& input : inputs) {
      require_text(input, field);
      if (!input.ids.empty()) continue;
      require_short(field, input.text, reader_.context_length);
      told.push_back(input.text);
    }
    const std::vector<std::vector<int32_t>> encoded =
        told.empty() ? std::vector<std::vector<int32_t>>() : reader_.tokenizer->encode_all(told);
    auto next = encoded.begin();
    const int64_t kept = kept_tokens();
    for (const Input& input : inputs) {
      std::vector<int32_t> tokens(input.ids.begin(), input.ids.end());
      if (input.ids.empty()) {
        tokens = *next++;
        if (ends_) tokens = corpus::with_ends(*reader_.tokenizer, std::move(tokens), kept);
      }
      add_tokens(std::move(tokens), input.name, field);
    }
  }

  // The number of tokens of a text that truncate_prompt_tokens keeps.
  int64_t kept_tokens() const {
    const auto most = read_field<int64_t>(body_, "truncate_prompt_tokens");
    if (!most) return std::numeric_limits<int64_t>::max();
    require_field_in<int64_t>("truncate_prompt_tokens", *most, {-1, reader_.context_length});
    if (*most == 0)
      throw FieldError("truncate_prompt_tokens",
                       "truncate_prompt_tokens is 0: give how many tokens are kept, or -1 for the context");
    return *most < 0 ? reader_.context_length : *most;
  }

  void add_tokens(std::vector<int32_t> tokens, const std::string& name, const char* field) {
    tokens.resize(static_cast<size_t>(std::min<int64_t>(std::ssize(tokens), kept_tokens())));
    if (tokens.empty()) throw FieldError(field, text(name, " has no token: give it some text"));
    if (std::ssize(tokens) > reader_.context_length)
      throw FieldError(field,
                       text(name, " has ", tokens.size(), " tokens, more than the ", reader_.context_length,
                            " of this server: shorten it, or give \"truncate_prompt_tokens\": -1"));
    for (const int32_t id : tokens) {
      if (id >= 0 && id < reader_.vocabulary) continue;
      throw InputError(text(name, " has the token ", id, ", but the model's vocabulary has ",
                            reader_.vocabulary, " ids: start the server with the model's own --tokenizer"));
    }
    request_.texts.push_back(std::move(tokens));
  }

  void require_few_numbers() const {
    const int64_t numbers = std::ssize(request_.texts) * request_.dimensions.value_or(reader_.head.width);
    if (numbers <= reader_.limits.numbers) return;
    throw FieldError("input", text("input asks for ", numbers, " numbers, more than ", reader_.limits.numbers,
                                   ": send fewer texts, or ask for fewer dimensions"));
  }

  const HeadRequestReader& reader_;
  const Json& body_;
  const HeadEndpoint endpoint_;
  const bool ends_;  // texts begin and end as documents do
  HeadRequest request_;
};

}  // namespace

std::optional<HeadEndpoint> head_endpoint_of(std::string_view path) {
  const bool second = path == "/v2/rerank";  // Cohere's
  if (path.starts_with("/v1/") || second) path.remove_prefix(3);
  for (const auto& [name, endpoint] : kPaths) {
    if (path == name) return endpoint;
  }
  return std::nullopt;
}

std::string ServedHead::description() const {
  if (output == Output::kEmbedding) return text("ends in embeddings of ", width, " numbers");
  return width == 1 ? "ends in one number a text" : text("ends in ", width, " classes");
}

std::string ServedHead::refusal(HeadEndpoint endpoint) const {
  const bool embeds = output == Output::kEmbedding;
  if (endpoint == HeadEndpoint::kEmbeddings && !embeds)
    return text("the model ", description(), " and has no embeddings: ask /classify or /pooling");
  if (endpoint == HeadEndpoint::kClassify && embeds)
    return text("the model ", description(), " and knows no classes: ask /v1/embeddings");
  const bool compares = endpoint == HeadEndpoint::kScore || endpoint == HeadEndpoint::kRerank;
  if (compares && !embeds && width > 1)
    return text("the model ", description(), ", and a score is one number: ask /classify");
  return "";
}

int64_t HeadRequest::prompt_tokens() const {
  int64_t tokens = 0;
  for (const std::vector<int32_t>& each : texts) tokens += std::ssize(each);
  return tokens;
}

HeadRequest HeadRequestReader::read(const std::string& body, HeadEndpoint endpoint) const {
  const Json json = read_body(body, rules_of(endpoint), limits.json_entries);
  read_model(json, model, {});
  return RequestBuilder(*this, json, endpoint).build();
}

void require_pair_template(const std::string& pair_template) {
  for (const std::string_view part : {"{query}", "{document}"}) {
    const size_t first = pair_template.find(part);
    if (first != pair_template.npos && pair_template.find(part, first + 1) == pair_template.npos) continue;
    throw InputError(
        text("--pair-template is '", pair_template, "': write {query} and {document} in it, once each"));
  }
}

}  // namespace sluice::serve
