// The few socket calls that ranks need beside libtorch's. IPv4 and IPv6; errors are RunErrors that name the
// address, the cause and the way out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::transport {

// Nobody listened, or answered, in time.
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

// Listens at `address`, on a port that the system chooses for port 0.
Socket listen_at(const std::string& address, int port = 0);
// Listens at each of the host's addresses that is one of this machine's. None where all are elsewhere: those
// of a service in front of this machine, say.
std::vector<Socket> listen_at_own(const std::string& host, int port);
std::vector<Socket> only(Socket socket);
int port_of(const Socket& socket);
std::string address_of(const Socket& socket);  // in figures

// A descriptor that this process was started with; the processes that it starts don't get it.
Socket inherited(int fd);

// Blocks until connected to one of the host's addresses; retries refusals until the timeout, then
// Unreachable.
Socket connect_to(const std::string& address, int port, int64_t timeout_ns);

// A connection under way that never blocks: poll says when it may be written to, and sees its failure. A
// closed Socket when it cannot even begin.
Socket begin_connecting(const std::string& address, int port);

// The next connection to `listener`, without waiting; a closed Socket, and the reason in errno, if there is
// none. REQUIRES: never_block(listener) was called.
Socket accept_from(const Socket& listener);
void never_block(const Socket& socket);

// All `bytes`, or false on end-of-file, error or timeout.
bool read_all(const Socket& socket, void* data, int64_t bytes, int64_t timeout_ns);

// All `bytes` at once without blocking, or false.
bool write_all(const Socket& socket, const void* data, int64_t bytes);

// The address of this machine on the way to `address`: what others there can reach it by.
std::string address_towards(const std::string& address);
// The addresses that other machines may reach this one by, IPv4 first; none where it has only its loopback.
std::vector<std::string> interface_addresses();
bool is_loopback(const std::string& address);

// Whether the process, or the machine, cannot open any more files or connections.
bool out_of_descriptors(int error);

}  // namespace sluice::transport
