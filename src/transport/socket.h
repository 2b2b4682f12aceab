// The few socket calls that the heartbeat and the launchers need. IPv4 and IPv6; errors are RunErrors that
// name the address.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::transport {

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

// Listens at `address` on a port that the system chooses.
Socket listen_at(const std::string& address, int backlog);
int port_of(const Socket& socket);

// Blocks until connected; retries refusals until the timeout.
Socket connect_to(const std::string& address, int port, int64_t timeout_ns);

// The next connection to `listener`, or a closed Socket after the timeout.
Socket accept_from(const Socket& listener, int64_t timeout_ns);

// All `bytes`, or false on end-of-file, error or timeout.
bool read_all(const Socket& socket, void* data, int64_t bytes, int64_t timeout_ns);

// All `bytes` at once without blocking, or false.
bool write_all(const Socket& socket, const void* data, int64_t bytes);

// The address of this machine on the way to `address`: what others there can reach it by.
std::string address_towards(const std::string& address);

// A port that was free a moment ago on this machine.
int free_port();

}  // namespace sluice::transport
