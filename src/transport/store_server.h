// The ranks' common memory while they join each other, as a thread of rank 0: texts by key, for who may enter
// (transport/reception.h). Once every rank has come, the door is shut: nobody else can even connect.
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

// A rank's connection to the store. Not thread-safe. Every call throws RunError when rank 0 has gone.
class StoreClient {
 public:
  // Blocks until let in; throws as enter() does.
  StoreClient(const std::string& address, int port, const RunKey& key, int rank, int64_t timeout_ns);

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> find(const std::string& key);
  // Adds to the number that the key's text says, 0 without one; the sum.
  int64_t add(const std::string& key, int64_t amount);
  // Sets `desired` if the key holds `expected`, "" standing for no text; what it holds then.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool erase(const std::string& key);
  int64_t size();
  // Whether all keys came to hold a text in time. RunError, naming it, when a rank has left and they did not.
  bool wait(const std::vector<std::string>& keys, int64_t timeout_ns);

 private:
  std::string ask(const std::string& request, int64_t patience_ns);

  Socket socket_;
};

}  // namespace sluice::transport
