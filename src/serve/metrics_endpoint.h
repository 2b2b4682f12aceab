// A page of metrics for Prometheus to scrape, at an address of its own; it shows the newest metrics.
#pragma once

#include <memory>
#include <string>

namespace sluice::serve {

class MetricsEndpoint {
 public:
  // `address`: "127.0.0.1:9464"; port 0: any. InputError, with
  // `name` for the option, if it is no address or not available.
  MetricsEndpoint(const std::string& address, const std::string& name);
  ~MetricsEndpoint();

  int port() const;
  // From any thread. `text` is in Prometheus' format.
  void show(std::string text);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve
