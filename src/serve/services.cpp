#include "serve/services.h"

#include <chrono>
#include <utility>

#include "base/text.h"
#include "serve/answer.h"
#include "serve/head_answer.h"
#include "serve/responses.h"

namespace sluice::serve {
namespace {

using base::text;

std::optional<Endpoint> endpoint_of(const std::string& path) {
  if (path == "/v1/completions") return Endpoint::kCompletions;
  if (path == "/v1/chat/completions") return Endpoint::kChat;
  return std::nullopt;
}

Response nothing_at(const std::string& path) {
  return invalid_request(404, text("POST ", path, " is nothing that this server answers"));
}

Response not_of_this_model(const std::string& message) {
  return invalid_request(400, message, "unsupported_endpoint");
}

AnswerHead about_of(const ServerOptions& options, const char* kind, uint64_t number) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.id = text(kind, number),
          .model = options.model,
          .fingerprint = "",
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

// Begins an answer on a thread of the pool. The request's bytes are freed when that has run.
template <typename Begin>
void post_beginning(FairPool& pool, const std::string& client, HttpRequest request, Begin begin) {
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  pool.post(FairPool::Turn::kBegin, client, [shared, begin] {
    const HttpRequest own = std::move(*shared);
    begin(own.body);
  });
}

class GenerationService final : public Service {
 public:
  GenerationService(Engine& engine, const ServiceContext& of)
      : options_(of.options),
        reader_{&of.tokenizer,        options_.model,    options_.vocabulary, options_.context_length,
                options_.tool_format, options_.requests, options_.adapters},
        rounds_(of.pool, of.tokenizer),
        context_{engine,         of.pool,  rounds_, reader_, options_.context_length, options_.end_tokens,
                 of.fingerprint, of.failed} {}

  std::optional<Response> refusal(const std::string& path) const override {
    if (endpoint_of(path)) return std::nullopt;
    if (!head_endpoint_of(path)) return nothing_at(path);
    return not_of_this_model(text("the model '", options_.model,
                                  "' generates text and does not end in a head, so it has no embeddings, "
                                  "scores or classes: ask /v1/completions, or serve a model that has one"));
  }

  void answer(HttpRequest request, const std::string& client, std::shared_ptr<Reply> reply, uint64_t number,
              uint64_t seed) override {
    const Endpoint endpoint = *endpoint_of(request.head.path);
    const char* const kind = endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
    const auto answer =
        std::make_shared<Answer>(context_, client, std::move(reply), about_of(options_, kind, number));
    post_beginning(
        context_.pool, client, std::move(request),
        [answer, endpoint, seed](const std::string& body) { answer->begin(body, endpoint, seed); });
  }

 private:
  const ServerOptions& options_;
  const RequestReader reader_;
  Rounds rounds_;
  AnswerContext context_;
};

class HeadService final : public Service {
 public:
  HeadService(HeadEngine& engine, const ServiceContext& of)
      : options_(of.options),
        context_{engine,
                 of.pool,
                 {&of.tokenizer, options_.model, options_.vocabulary, options_.context_length, options_.head,
                  options_.pair_template, options_.requests},
                 of.fingerprint,
                 of.failed} {}

  std::optional<Response> refusal(const std::string& path) const override {
    if (const auto endpoint = head_endpoint_of(path)) {
      const std::string why = options_.head.refusal(*endpoint);
      return why.empty() ? std::nullopt : std::optional(not_of_this_model(why));
    }
    if (!endpoint_of(path)) return nothing_at(path);
    const bool embeds = options_.head.output == ServedHead::Output::kEmbedding;
    return not_of_this_model(text("the model '", options_.model, "' ", options_.head.description(),
                                  " and generates no text: ask ", embeds ? "/v1/embeddings" : "/classify"));
  }

  void answer(HttpRequest request, const std::string& client, std::shared_ptr<Reply> reply, uint64_t number,
              uint64_t /*seed*/) override {
    const HeadEndpoint endpoint = *head_endpoint_of(request.head.path);
    const auto answer =
        std::make_shared<HeadAnswer>(context_, client, std::move(reply), about_of(options_, "head-", number));
    post_beginning(context_.pool, client, std::move(request),
                   [answer, endpoint](const std::string& body) { answer->begin(body, endpoint); });
  }

 private:
  const ServerOptions& options_;
  HeadAnswerContext context_;
};

}  // namespace

std::unique_ptr<Service> generation_service(Engine& engine, const ServiceContext& context) {
  return std::make_unique<GenerationService>(engine, context);
}

std::unique_ptr<Service> head_service(HeadEngine& engine, const ServiceContext& context) {
  return std::make_unique<HeadService>(engine, context);
}

}  // namespace sluice::serve
