#include "serve/server.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "corpus/continuation.h"
#include "serve/api.h"
#include "serve/listening.h"

namespace sluice::serve {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr size_t kMostBytes = size_t{16} << 20;  // of a request
constexpr size_t kThreads = 128;                 // a stream holds one
constexpr time_t kPatienceSeconds = 30;          // for an asker that sends or takes nothing

void send(httplib::Response& response, int status, const Json& json) {
  response.status = status;
  response.set_content(base::json_text(json), "application/json");
}

// The conversations of one request, prompt by prompt, and their texts.
class Answers {
 public:
  void add(std::shared_ptr<Conversation> conversation) {
    conversations_.push_back(std::move(conversation));
    seen_.push_back(0);
  }
  ~Answers() {
    for (const auto& conversation : conversations_) conversation->leave();
  }

  void wait_for_all() {
    for (size_t i = 0; i < conversations_.size(); ++i) {
      do {
        seen_[i] = conversations_[i]->wait(seen_[i]);
      } while (!conversations_[i]->finished());
    }
  }
  // Waits for something new of the first that has not ended; false: all have.
  bool wait_for_more() {
    for (size_t i = 0; i < conversations_.size(); ++i) {
      if (seen_[i] > 0 && conversations_[i]->finished()) continue;
      seen_[i] = conversations_[i]->wait(seen_[i]);
      return true;
    }
    return false;
  }

  // Calls visit(index of the choice, prompt, text).
  template <typename Visit>
  void for_each(Visit visit) const {
    int index = 0;
    for (size_t prompt = 0; prompt < conversations_.size(); ++prompt) {
      for (const Conversation::Text& each : conversations_[prompt]->texts()) visit(index++, prompt, each);
    }
  }

 private:
  std::vector<std::shared_ptr<Conversation>> conversations_;
  std::vector<int64_t> seen_;
};

std::string metrics_text(const EngineFigures& figures) {
  std::string lines;
  const auto add = [&](const char* name, const char* kind, const char* help, int64_t value) {
    lines += text("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n", name, " ", value, "\n");
  };
  add("sluice_requests_total", "counter", "Prompts that were taken.", figures.conversations);
  add("sluice_requests_refused_total", "counter", "Prompts refused because too many waited.",
      figures.refused);
  add("sluice_requests_left_total", "counter", "Prompts whose asker went before the end.", figures.left);
  add("sluice_prompt_tokens_total", "counter", "Tokens of prompts.", figures.prompt_tokens);
  add("sluice_generated_tokens_total", "counter", "Tokens that were said.", figures.spoken_tokens);
  add("sluice_passes_total", "counter", "Passes through the model.", figures.passes);
  add("sluice_evictions_total", "counter", "Texts put off for want of cache.", figures.evictions);
  add("sluice_texts_under_way", "gauge", "Texts that are being said.", figures.under_way);
  add("sluice_texts_waiting", "gauge", "Texts that wait.", figures.waiting);
  add("sluice_cache_pages", "gauge", "Pages of the key cache.", figures.pages);
  add("sluice_cache_pages_free", "gauge", "Pages that nobody holds.", figures.free_pages);
  return lines;
}

// Of equal length whatever is wrong, so that how long it takes says nothing.
bool same(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i] ^ b[i % std::max<size_t>(1, b.size())]);
  return different == 0;
}

}  // namespace

class Server::Impl {
 public:
  Impl(Engine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options)
      : engine_(engine), tokenizer_(tokenizer), options_(std::move(options)) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kMostBytes);
    server_.set_read_timeout(kPatienceSeconds);
    server_.set_write_timeout(kPatienceSeconds);
    add_routes();
    port_ = listen(server_, options_.host, options_.port);
    if (port_ < 0) {
      throw InputError(
          text("cannot listen at ", options_.host, " port ", options_.port,
               ": another program does, or the address is none of this machine's: choose another with "
               "--port or --host"));
    }
  }

  int port() const { return port_; }
  void run() {
    if (!stopped_) server_.listen_after_bind();
  }
  void stop() {
    stopped_ = true;
    server_.stop();
  }

 private:
  void add_routes() {
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (request.path == "/health" || options_.key.empty() ||
          same(request.get_header_value("Authorization"), "Bearer " + options_.key))
        return httplib::Server::HandlerResponse::Unhandled;
      send(response, 401,
           error_json("the key is wrong or missing: send it as \"Authorization: Bearer KEY\"",
                      "invalid_request_error"));
      return httplib::Server::HandlerResponse::Handled;
    });
    server_.set_exception_handler([](const httplib::Request&, httplib::Response& response,
                                     std::exception_ptr error) { report(response, error); });
    server_.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const int status = response.status;
      send(response, status,
           error_json(text(request.method, " ", request.path, " is nothing that this server answers"),
                      "invalid_request_error"));
    });
    server_.Get("/health", [this](const auto&, httplib::Response& response) {
      const std::string fault = engine_.fault();
      if (!fault.empty()) return send(response, 500, error_json(fault, "server_error"));
      send(response, 200, {{"status", "ok"}});
    });
    server_.Get("/metrics", [this](const auto&, httplib::Response& response) {
      response.set_content(metrics_text(engine_.figures()), "text/plain; version=0.0.4");
    });
    server_.Get("/v1/models", [this](const auto&, httplib::Response& response) {
      const Json model = {{"id", options_.model},
                          {"object", "model"},
                          {"created", started_},
                          {"owned_by", "sluice"},
                          {"max_model_len", options_.context_length}};
      send(response, 200, {{"object", "list"}, {"data", Json::array({model})}});
    });
    const auto post = [this](const char* path, Endpoint endpoint) {
      server_.Post(path, [this, endpoint](const httplib::Request& request, httplib::Response& response) {
        answer(request, response, endpoint);
      });
    };
    post("/v1/completions", Endpoint::kCompletions);
    post("/v1/chat/completions", Endpoint::kChat);
  }

  static void report(httplib::Response& response, std::exception_ptr error) {
    try {
      std::rethrow_exception(std::move(error));
    } catch (const InputError& fault) {
      send(response, 400, error_json(fault.what(), "invalid_request_error"));
    } catch (const std::exception& fault) {
      send(response, 500, error_json(fault.what(), "server_error"));
    }
  }

  // Tokens that may be said behind a prompt.
  int64_t most_tokens(const Asked& asked, const std::vector<int64_t>& prompt) const {
    const int64_t left = options_.context_length - static_cast<int64_t>(prompt.size());
    const int64_t usual = asked.endpoint == Endpoint::kChat ? std::max<int64_t>(1, left) : 16;
    const int64_t wanted = asked.most_tokens.value_or(usual);
    // What is said behind a prompt that is only scored stands nowhere.
    if (wanted <= left) return std::max<int64_t>(1, wanted);
    throw InputError(text("the prompt has ", prompt.size(), " tokens and max_tokens is ", wanted,
                          ", together more than the ", options_.context_length,
                          " of this server: give a shorter prompt or ask for less"));
  }

  // Null: too many wait.
  std::shared_ptr<Answers> ask(const Asked& asked) {
    auto answers = std::make_shared<Answers>();
    generate::Manner manner{.sampling = asked.sampling,
                            .end_tokens = options_.end_tokens,
                            .alternatives = asked.logprobs ? asked.alternatives : 0};
    for (size_t i = 0; i < asked.prompts.size(); ++i) {
      manner.number = i;
      const std::vector<int64_t>& prompt = asked.prompts[i];
      if (!asked.stops.empty()) manner.ends = ends_at_stop(tokenizer_, prompt, asked.stops);
      auto conversation = engine_.ask(
          {prompt, most_tokens(asked, prompt), asked.samples, asked.echo && asked.logprobs}, manner);
      if (conversation == nullptr) return nullptr;
      answers->add(std::move(conversation));
    }
    return answers;
  }

  void answer(const httplib::Request& request, httplib::Response& response, Endpoint endpoint) {
    const auto number = static_cast<uint64_t>(++requests_);
    // Another one each time, and in each life of the server.
    const uint64_t seed = base::random_bits(static_cast<uint64_t>(started_ns_), number, 0) >> 1;
    auto asked =
        std::make_shared<Asked>(read_request(request.body, endpoint, tokenizer_, options_.vocabulary, seed));
    const std::shared_ptr<Answers> answers = ask(*asked);
    if (answers == nullptr) {
      response.set_header("Retry-After", "1");
      return send(response, 503, error_json("too many texts wait: ask again later", "overloaded_error"));
    }
    const std::string id = text(endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-", number);
    if (asked->stream) return stream(response, asked, answers, id);
    answers->wait_for_all();
    std::vector<Choice> choices;
    std::vector<generate::Said> said;
    std::vector<corpus::Continuation> texts;
    answers->for_each([&](int, size_t, const Conversation::Text& each) { said.push_back(each.said); });
    answers->for_each([&](int index, size_t prompt, const Conversation::Text&) {
      generate::Said& own = said[static_cast<size_t>(index)];
      if (asked->most_tokens == 0) own.tokens.clear();
      texts.push_back(corpus::continuation_of(tokenizer_, asked->prompts[prompt], own.tokens));
      choices.push_back({index, "", &own, &asked->prompts[prompt], true});
    });
    const std::vector<std::string> whole = corpus::texts_behind(tokenizer_, texts);
    for (size_t i = 0; i < choices.size(); ++i) choices[i].text = cut_at_stop(whole[i], asked->stops);
    // Scores of a prompt are known once, of its first text.
    for (size_t i = 0; i < choices.size(); ++i) {
      const size_t first = i - i % static_cast<size_t>(asked->samples);
      if (said[i].prompt.empty()) said[i].prompt = said[first].prompt;
    }
    send(response, 200, answer_json(*asked, id, options_.model, now(), choices, tokenizer_));
  }

  void stream(httplib::Response& response, const std::shared_ptr<Asked>& asked,
              const std::shared_ptr<Answers>& answers, const std::string& id) {
    struct Shown {
      TextSoFar text;
      bool begun = false, ended = false;
    };
    auto shown = std::make_shared<std::map<int, Shown>>();
    response.set_chunked_content_provider("text/event-stream", [this, asked, answers, id, shown](
                                                                   size_t, httplib::DataSink& sink) {
      const auto write = [&](const std::string& line) {
        const std::string event = "data: " + line + "\n\n";
        return sink.is_writable() && sink.write(event.data(), event.size());
      };
      try {
        const bool more = answers->wait_for_more();
        bool there = true;
        answers->for_each([&](int index, size_t prompt, const Conversation::Text& each) {
          Shown& own =
              shown->try_emplace(index, Shown{TextSoFar(tokenizer_, asked->prompts[prompt], asked->stops)})
                  .first->second;
          if (own.ended || !there) return;
          const std::string news = own.text.more(each.said, each.finished);
          own.ended = each.finished;
          if (news.empty() && !each.finished) return;
          const Choice choice{index, news, &each.said, &asked->prompts[prompt], each.finished};
          there = write(base::json_text(chunk_json(*asked, id, options_.model, now(), choice, !own.begun)));
          own.begun = true;
        });
        if (!there) return false;
        if (more) return true;
        write("[DONE]");
      } catch (const std::exception& error) {
        write(base::json_text(error_json(error.what(), "server_error")));
      }
      sink.done();
      return true;
    });
  }

  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::seconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  Engine& engine_;
  const corpus::Tokenizer& tokenizer_;
  ServerOptions options_;
  httplib::Server server_;
  int port_ = 0;
  int64_t started_ = now();
  int64_t started_ns_ = std::chrono::system_clock::now().time_since_epoch().count();
  std::atomic<int64_t> requests_ = 0;
  std::atomic<bool> stopped_ = false;
};

Server::Server(Engine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options)
    : impl_(std::make_unique<Impl>(engine, tokenizer, std::move(options))) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
void Server::run() { impl_->run(); }
void Server::stop() { impl_->stop(); }

}  // namespace sluice::serve
