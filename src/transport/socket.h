// The socket calls that ranks need in addition to libtorch's. IPv4 and IPv6. Errors are RunErrors that name
// the address, the cause and the way out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::transport {

// No process listened, or none answered, in time.
class Unreachable : public base::RunError {
 public:
  using RunError::RunError;
};

// Owns a file descriptor. Movable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close();

 private:
  int release();

  int fd_ = -1;
};

// Listens at `address`; for port 0 the system chooses a port.
Socket listen_at(const std::string& address, int port = 0);
// Listens at each of the host's addresses that belongs to this machine. Empty if none does, e.g. if they
// belong to a service in front of this machine.
std::vector<Socket> listen_at_own(const std::string& host, int port);
std::vector<Socket> only(Socket socket);
int port_of(const Socket& socket);
std::string address_of(const Socket& socket);  // numeric

// A descriptor that this process inherited. It is closed in the processes that this one starts.
Socket inherited(int fd);

// Blocks until connected to one of the host's addresses. Retries refused connections until the timeout, then
// throws Unreachable.
Socket connect_to(const std::string& address, int port, int64_t timeout_ns);

// Starts a non-blocking connection. poll() tells when it is writable or has failed. Returns a closed Socket
// if it cannot even start.
Socket begin_connecting(const std::string& address, int port);

// The next connection to `listener`, without waiting; a closed Socket with the reason in errno if there is
// none. REQUIRES: never_block(listener) was called.
Socket accept_from(const Socket& listener);
void never_block(const Socket& socket);

// Reads all `bytes`; false on end-of-file, error or timeout.
bool read_all(const Socket& socket, void* data, int64_t bytes, int64_t timeout_ns);

// Writes all `bytes` at once without blocking; false if that is impossible.
bool write_all(const Socket& socket, const void* data, int64_t bytes);

// This machine's address on the route to `address`, where machines over there can reach it.
std::string address_towards(const std::string& address);
// The addresses at which other machines may reach this one, IPv4 first; empty if it has only a loopback.
std::vector<std::string> interface_addresses();
bool is_loopback(const std::string& address);

// Whether the error means that the process or the machine cannot open more files or connections.
bool out_of_descriptors(int error);

}  // namespace sluice::transport
