// A page of figures for Prometheus to scrape, at an address of its own: the newest that was shown.
#pragma once

#include <memory>
#include <string>

namespace sluice::serve {

class MetricsEndpoint {
 public:
  // `address`: "127.0.0.1:9464"; port 0: any. InputError, calling it `name`, where it is no address or cannot
  // be had.
  MetricsEndpoint(const std::string& address, const std::string& name);
  ~MetricsEndpoint();

  int port() const;
  // From any thread. `text` in Prometheus' format.
  void show(std::string text);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::serve
