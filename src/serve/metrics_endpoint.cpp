#include "serve/metrics_endpoint.h"

#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "serve/http_server.h"

namespace sluice::serve {
namespace {

// Small limits: a scraper or two fetch small pages.
constexpr HttpLimits kLimits{.connections = 256, .connections_per_client = 64, .body_bytes = 8192};

}  // namespace

class MetricsEndpoint::Impl : public HttpHandler {
 public:
  Impl(const std::string& address, const std::string& name) {
    const size_t colon = address.rfind(':');
    const auto port = colon == address.npos ? std::nullopt : base::parse_integer(address.substr(colon + 1));
    if (!port || *port < 0 || *port > 65535 || colon == 0)
      throw base::InputError(
          base::text(name, " is '", address, "': give an address and a port, as 127.0.0.1:9464"));
    try {
      server_ =
          std::make_unique<HttpServer>(address.substr(0, colon), static_cast<int>(*port), kLimits, *this);
    } catch (const std::exception&) {
      throw base::InputError(base::text(name, " is '", address,
                                        "', where another program listens, or none can: choose another"));
    }
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Impl() override {
    server_->stop();
    thread_.join();
  }

  Admission admit(const http::Head& head) override {
    const bool asks = head.method == "GET" || head.method == "HEAD";
    if (asks && head.path == "/metrics") return {.refusal = std::nullopt, .body_bytes = kLimits.body_bytes};
    return {.refusal = refusal(404, "GET /metrics is all that is answered here"), .body_bytes = 0};
  }
  void handle(HttpRequest, std::shared_ptr<Reply> reply) override {
    const std::lock_guard lock(mutex_);
    reply->send({.status = 200, .body = text_, .content_type = kMetricsType});
  }
  Response refusal(int status, const std::string& message) const override {
    return {.status = status, .body = message + "\n", .content_type = "text/plain"};
  }

  int port() const { return server_->port(); }
  void show(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }

 private:
  std::mutex mutex_;
  std::string text_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

MetricsEndpoint::MetricsEndpoint(const std::string& address, const std::string& name)
    : impl_(std::make_unique<Impl>(address, name)) {}
MetricsEndpoint::~MetricsEndpoint() = default;
int MetricsEndpoint::port() const { return impl_->port(); }
void MetricsEndpoint::show(std::string text) { impl_->show(std::move(text)); }

}  // namespace sluice::serve
