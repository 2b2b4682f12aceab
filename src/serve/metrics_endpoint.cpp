#include "serve/metrics_endpoint.h"

#include <httplib.h>

#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "serve/listening.h"

namespace sluice::serve {

class MetricsEndpoint::Impl {
 public:
  Impl(const std::string& address, const std::string& name) {
    const size_t colon = address.rfind(':');
    const auto port = colon == address.npos ? std::nullopt : base::parse_integer(address.substr(colon + 1));
    if (!port || *port < 0 || *port > 65535 || colon == 0)
      throw base::InputError(
          base::text(name, " is '", address, "': give an address and a port, as 127.0.0.1:9464"));
    server_.new_task_queue = [] { return new httplib::ThreadPool(2); };
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      response.set_content(text_, "text/plain; version=0.0.4");
    });
    port_ = listen(server_, address.substr(0, colon), static_cast<int>(*port));
    if (port_ < 0)
      throw base::InputError(base::text(name, " is '", address,
                                        "', where another program listens, or none can: choose "
                                        "another"));
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~Impl() {
    // Stopping a server that has not begun is forgotten by it.
    while (!server_.is_running()) std::this_thread::yield();
    server_.stop();
    thread_.join();
  }

  int port() const { return port_; }
  void show(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::mutex mutex_;
  std::string text_;
  std::thread thread_;
};

MetricsEndpoint::MetricsEndpoint(const std::string& address, const std::string& name)
    : impl_(std::make_unique<Impl>(address, name)) {}
MetricsEndpoint::~MetricsEndpoint() = default;
int MetricsEndpoint::port() const { return impl_->port(); }
void MetricsEndpoint::show(std::string text) { impl_->show(std::move(text)); }

}  // namespace sluice::serve
