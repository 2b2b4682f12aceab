#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "serve/fair_pool.h"
#include "serve/responses.h"
#include "serve/services.h"

namespace sluice::serve {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr int64_t kBodyOfGet = 8192;  // read and discarded
constexpr std::string_view kModels = "/v1/models";

std::string metrics_text(const EngineStats& engine, const HttpFigures& http) {
  std::string lines;
  const auto add = [&](const char* name, const char* kind, const char* help, int64_t value) {
    lines += text("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n", name, " ", value, "\n");
  };
  add("sluice_requests_total", "counter", "Prompts that were taken.", engine.requests);
  add("sluice_requests_refused_total", "counter", "Prompts refused because too many waited.", engine.refused);
  add("sluice_requests_aborted_total", "counter", "Prompts whose client left before the end.",
      engine.aborted);
  add("sluice_prompt_tokens_total", "counter", "Tokens of prompts.", engine.prompt_tokens);
  add("sluice_generated_tokens_total", "counter", "Tokens that were generated.", engine.generated_tokens);
  add("sluice_engine_steps_total", "counter", "Steps of the engine.", engine.engine_steps);
  add("sluice_preemptions_total", "counter",
      "Sequences preempted for lack of KV blocks, or for another client.", engine.preemptions);
  add("sluice_sequences_running", "gauge", "Sequences that are being generated.", engine.running);
  add("sluice_sequences_waiting", "gauge", "Sequences that wait.", engine.waiting);
  add("sluice_clients", "gauge", "Clients that have sequences.", engine.clients);
  add("sluice_kv_cache_blocks", "gauge", "Blocks of the KV cache.", engine.kv_blocks);
  add("sluice_kv_cache_blocks_free", "gauge", "Blocks of the KV cache that nobody holds.",
      engine.free_kv_blocks);
  add("sluice_connections", "gauge", "Connections that are open.", http.connections);
  add("sluice_connections_total", "counter", "Connections that were accepted.", http.accepted);
  add("sluice_connections_refused_total", "counter", "Connections refused beyond a bound.", http.refused);
  add("sluice_connections_late_total", "counter", "Connections closed at a deadline.", http.late);
  add("sluice_bad_messages_total", "counter", "Messages that were no requests.", http.faults);
  return lines;
}

// Takes the same time whatever differs.
bool same(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i] ^ (b.empty() ? ' ' : b[i % b.size()]));
  return different == 0;
}

std::string media_type(const std::string& value) {
  std::string type = value.substr(0, value.find(';'));
  while (type.ends_with(' ')) type.pop_back();
  std::ranges::transform(type, type.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return type;
}

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

class Server::Impl : public HttpHandler {
 public:
  template <typename AnyEngine>
  Impl(AnyEngine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options,
       std::unique_ptr<Service> (*service)(AnyEngine&, const ServiceContext&))
      : engine_(engine),
        tokenizer_(tokenizer),
        options_(std::move(options)),
        pool_(std::make_unique<FairPool>(options_.threads)),
        service_(service(engine, {*pool_, tokenizer_, options_, [this] { return fingerprint(); },
                                  [this](const std::string& fault) { set_fault(fault); }})),
        fingerprint_(options_.fingerprint) {
    try {
      http_ = std::make_unique<HttpServer>(options_.host, options_.port, options_.http, *this);
    } catch (const std::exception&) {
      throw InputError(
          text("cannot listen at ", options_.host, " port ", options_.port,
               ": another program does, or the address is none of this machine's: choose another with "
               "--port or --host"));
    }
  }

  // Order matters: the engine calls answers, which post to the pool, which sends to connections.
  ~Impl() override {
    engine_.stop("the server was stopped");
    http_.reset();
    pool_.reset();
  }

  HttpServer& http() { return *http_; }
  void drain() {
    draining_ = true;
    http_->drain();
  }
  void set_fingerprint(std::string fingerprint) {
    const std::lock_guard lock(mutex_);
    fingerprint_ = std::move(fingerprint);
  }

  // Checks a request before its body is read, so a client without a key cannot make the server hold a body.
  Admission admit(const http::Head& head) override {
    if (auto told = refuse_stranger(head)) return {std::move(told), 0};
    const bool asks = head.method == "GET" || head.method == "HEAD";
    if (asks && (head.path == "/health" || head.path == "/metrics" || head.path.starts_with(kModels)))
      return {std::nullopt, kBodyOfGet};
    if (head.method != "POST")
      return {invalid_request(404, text(head.method, " ", head.path, " is nothing that this server answers")),
              0};
    if (auto told = service_->refusal(head.path)) return {std::move(told), 0};
    if (auto told = refuse_content(head)) return {std::move(told), 0};
    if (draining_) return {retry_later("the server is stopping: ask another one, or this one later", "5"), 0};
    return {std::nullopt, options_.http.body_bytes};
  }

  void handle(HttpRequest request, std::shared_ptr<Reply> reply) override {
    const std::string& path = request.head.path;
    if (request.head.method == "POST") return answer(std::move(request), std::move(reply));
    if (path == "/health") return reply->send(health());
    if (path == "/metrics")
      return reply->send({.status = 200,
                          .body = metrics_text(engine_.stats(), http_->figures()),
                          .content_type = kMetricsType});
    reply->send(models(path.substr(kModels.size())));
  }

  Response refusal(int status, const std::string& message) const override {
    Response told = status == 503 ? retry_later(message, "1") : invalid_request(status, message);
    return told;
  }

 private:
  // Refuses clients without the key. Without keys, refuses web pages in a browser on
  // this machine that come under their own name (DNS rebinding) or from another origin.
  std::optional<Response> refuse_stranger(const http::Head& head) const {
    if (!options_.keys.empty()) {
      if (head.path == "/health" || knows_key(head)) return std::nullopt;
      Response told = invalid_request(
          401, "the key is wrong or missing: send it as \"Authorization: Bearer KEY\"", "invalid_api_key");
      told.fields.emplace_back("WWW-Authenticate", "Bearer");
      return told;
    }
    const bool is_own = head.host == "localhost" || head.host == http::name_of_authority(options_.host) ||
                        http::is_address(head.host) || (head.host.empty() && head.minor_version == 0);
    if (!is_own)
      return invalid_request(
          403, text("the host '", head.host,
                    "' is none of this server's: ask localhost or its address, or start it with a key in "
                    "SLUICE_API_KEY"));
    const std::string* const origin = head.find("origin");
    const std::string* const host = head.find("host");
    if (origin != nullptr &&
        (host == nullptr || (*origin != "http://" + *host && *origin != "https://" + *host)))
      return invalid_request(
          403,
          "a page of another origin asks: start the server with a key in SLUICE_API_KEY, which "
          "the page sends");
    return std::nullopt;
  }

  bool knows_key(const http::Head& head) const {
    const std::string* const told = head.find("authorization");
    bool known = false;
    for (const std::string& key : options_.keys) known |= same(told == nullptr ? "" : *told, "Bearer " + key);
    return known;
  }

  static std::optional<Response> refuse_content(const http::Head& head) {
    const std::string* const type = head.find("content-type");
    const std::string* const coding = head.find("content-encoding");
    if (type != nullptr && media_type(*type) != "application/json")
      return invalid_request(415, text("the body is ", base::excerpt(Json(*type)),
                                       ": send JSON, with the header Content-Type: application/json"));
    if (coding == nullptr || *coding == "identity") return std::nullopt;
    Response told = invalid_request(415, text("the body's Content-Encoding is ", base::excerpt(Json(*coding)),
                                              ": send it as it is, without one"));
    told.fields.emplace_back("Accept-Encoding", "identity");
    return told;
  }

  // Asks the engine, and the tokenizer if the last request failed.
  Response health() {
    if (const std::string fault = engine_.fault(); !fault.empty()) return retry_later(fault, "5");
    if (draining_) return retry_later("the server is stopping", "5");
    const std::lock_guard lock(mutex_);
    if (fault_.empty()) return json_response(200, {{"status", "ok"}});
    if (!std::exchange(probing_, true)) pool_->post(FairPool::Turn::kGoOn, "", [this] { probe(); });
    return retry_later("the last request failed: " + fault_, "5");
  }
  void probe() {
    std::string fault;
    try {
      tokenizer_.encode("a");
    } catch (const std::exception& error) {
      fault = error.what();
    }
    const std::lock_guard lock(mutex_);
    probing_ = false;
    fault_ = fault;
  }
  void set_fault(const std::string& fault) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
  }
  std::string fingerprint() const {
    const std::lock_guard lock(mutex_);
    return fingerprint_;
  }

  Json model_json(const std::string& id) const {
    Json model = {{"id", id},
                  {"object", "model"},
                  {"created", started_},
                  {"owned_by", "sluice"},
                  {"max_model_len", options_.context_length}};
    if (id != options_.model) model["parent"] = options_.model;
    return model;
  }

  // `name`: "", or "/" and a model's.
  Response models(const std::string& name) const {
    Json all = Json::array({model_json(options_.model)});
    for (const std::string& adapter : options_.adapters) all.push_back(model_json(adapter));
    if (name.empty() || name == "/") return json_response(200, {{"object", "list"}, {"data", all}});
    for (const Json& model : all) {
      const auto id = model.at("id").get<std::string>();
      if (name == "/" + id || name == id) return json_response(200, model);
    }
    return json_response(404, error_json(text("the model ", base::excerpt(Json(name.substr(1))),
                                              " is not served here: ask for '", options_.model, "'"),
                                         "invalid_request_error", "model", "model_not_found"));
  }

  void answer(HttpRequest request, std::shared_ptr<Reply> reply) {
    const auto number = static_cast<uint64_t>(++requests_);
    // A different seed for each request and each start of the server.
    const uint64_t seed = base::random_bits(static_cast<uint64_t>(started_ns_), number, 0) >> 1;
    const std::string client = client_of(request);
    service_->answer(std::move(request), client, std::move(reply), number, seed);
  }

  // A client's identity: its key if there are several, else its address.
  std::string client_of(const HttpRequest& request) const {
    const std::string* const told = request.head.find("authorization");
    return options_.keys.size() > 1 && told != nullptr ? *told : request.client;
  }

  RequestEngine& engine_;
  const corpus::Tokenizer& tokenizer_;
  const ServerOptions options_;
  std::unique_ptr<FairPool> pool_;
  std::unique_ptr<Service> service_;
  mutable std::mutex mutex_;
  std::string fingerprint_;
  std::string fault_;  // the last failure by the server's fault, until a probe succeeds
  bool probing_ = false;
  int64_t started_ = now_s();
  int64_t started_ns_ = std::chrono::system_clock::now().time_since_epoch().count();
  std::atomic<int64_t> requests_ = 0;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<HttpServer> http_;
};

Server::Server(Engine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options)
    : impl_(std::make_unique<Impl>(engine, tokenizer, std::move(options), &generation_service)) {}
Server::Server(HeadEngine& engine, const corpus::Tokenizer& tokenizer, ServerOptions options)
    : impl_(std::make_unique<Impl>(engine, tokenizer, std::move(options), &head_service)) {}
Server::~Server() = default;
int Server::port() const { return impl_->http().port(); }
void Server::run() { impl_->http().run(); }
void Server::drain() { impl_->drain(); }
void Server::stop() { impl_->http().stop(); }
void Server::set_fingerprint(std::string fingerprint) { impl_->set_fingerprint(std::move(fingerprint)); }

}  // namespace sluice::serve
