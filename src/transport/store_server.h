// The key-value store that ranks share while they join, served by a thread of rank 0 to admitted ranks
// (transport/reception.h). Once every rank has been admitted it stops listening.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/run_key.h"
#include "transport/socket.h"

namespace sluice::transport {

// Serves until it is destroyed.
class StoreServer {
 public:
  StoreServer(std::vector<Socket> listeners, const RunKey& key);
  ~StoreServer();

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

// A rank's connection to the store. Not thread-safe. Every call throws RunError if rank 0 has gone.
class StoreClient {
 public:
  // Blocks until this rank is admitted; throws like enter().
  StoreClient(const std::string& address, int port, const RunKey& key, int rank, int64_t timeout_ns);

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> find(const std::string& key);
  // Adds to the key's value, a decimal number (0 if it has none). Returns the sum.
  int64_t add(const std::string& key, int64_t amount);
  // Sets `desired` if the value is `expected`; "" means no value. Returns the value afterwards.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool erase(const std::string& key);
  int64_t size();
  // Whether all keys got values in time. RunError naming the first rank that left, if one did before.
  bool wait(const std::vector<std::string>& keys, int64_t timeout_ns);

 private:
  std::string ask(const std::string& request, int64_t patience_ns);

  Socket socket_;
};

}  // namespace sluice::transport
