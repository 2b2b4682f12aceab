#include "transport/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::transport {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Any UDP or TCP port works: no data is sent there.
constexpr int kDiscardPort = 9;

Addresses resolve(const std::string& address, int port, int type) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    throw base::RunError(base::text("cannot resolve host '", address, "': ", gai_strerror(status),
                                    ": give an address, or a name that this machine's resolver knows "
                                    "(MASTER_ADDR names rank 0's machine)"));
  }
  return {found, &freeaddrinfo};
}

Socket open_socket(const addrinfo& address) {
  return Socket(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

std::string in_figures(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "";
  return getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  pollfd entry{socket.fd(), events, 0};
  int ready = -1;
  do {
    ready = poll(&entry, 1, remaining_ms(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

std::string place(const std::string& address, int port) {
  return port == 0 ? address : base::text(address, " port ", port);
}

// The system's reason, with a remedy where one is known.
std::string cause(int error) {
  const std::string reason = std::strerror(error);
  switch (error) {
    case EMFILE: return reason + " in this process: raise its limit (ulimit -n)";
    case ENFILE: return reason + ": raise fs.file-max, or end other programs";
    case EADDRINUSE:
      return reason + ": end the program that listens there, or set MASTER_PORT to another port";
    case EACCES: return reason + ": set MASTER_PORT to a port from 1024 on";
    case EADDRNOTAVAIL: return reason + ": set MASTER_ADDR to an address of rank 0's machine";
    default: return reason;
  }
}

// 0 on success, otherwise the error. Makes the socket blocking again.
int connect_by(const Socket& socket, const addrinfo& address, Clock::time_point deadline) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK);
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return error;
  }
  fcntl(socket.fd(), F_SETFL, flags);
  return 0;
}

void send_small_messages_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  close();
  fd_ = other.release();
  return *this;
}

Socket::~Socket() { close(); }

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int Socket::release() { return std::exchange(fd_, -1); }

namespace {

// A closed Socket, with the reason in errno, if it cannot listen.
Socket listen_at(const addrinfo& address) {
  Socket listener = open_socket(address);
  const int on = 1;  // allows a port whose last connections are in TIME_WAIT
  const bool listens =
      listener.is_open() && setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(listener.fd(), address.ai_addr, address.ai_addrlen) == 0 && listen(listener.fd(), SOMAXCONN) == 0;
  const int error = errno;
  if (!listens) listener.close();
  errno = error;
  return listener;
}

[[noreturn]] void throw_deaf(const std::string& address, int port) {
  throw base::RunError(base::text("cannot listen at ", place(address, port), ": ", cause(errno)));
}

}  // namespace

Socket listen_at(const std::string& address, int port) {
  const Addresses addresses = resolve(address, port, SOCK_STREAM);
  Socket listener = listen_at(*addresses);
  if (!listener.is_open()) throw_deaf(address, port);
  return listener;
}

std::vector<Socket> listen_at_own(const std::string& host, int port) {
  const Addresses addresses = resolve(host, port, SOCK_STREAM);
  std::vector<Socket> listeners;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const std::string address = in_figures(one->ai_addr, one->ai_addrlen);
    const auto is_it = [&](const Socket& listener) { return address_of(listener) == address; };
    if (std::ranges::any_of(listeners, is_it)) continue;  // a name may occur twice in /etc/hosts
    Socket listener = listen_at(*one);
    if (listener.is_open()) {
      listeners.push_back(std::move(listener));
    } else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) {
      throw_deaf(address, port);
    }
  }
  return listeners;
}

std::vector<Socket> only(Socket socket) {
  std::vector<Socket> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string address_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return in_figures(reinterpret_cast<sockaddr*>(&address), size);
}

Socket inherited(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Socket(fd);
}

Socket connect_to(const std::string& address, int port, int64_t timeout_ns) {
  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(timeout_ns);
  const Addresses addresses = resolve(address, port, SOCK_STREAM);
  // An address that silently drops packets must not keep the next one from being tried.
  constexpr std::chrono::seconds kPatienceOfOne(3);
  while (true) {
    int error = 0;
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
      Socket socket = open_socket(*one);
      const Clock::time_point until =
          addresses->ai_next == nullptr ? deadline : std::min(deadline, Clock::now() + kPatienceOfOne);
      error = socket.is_open() ? connect_by(socket, *one, until) : errno;
      if (error == 0) {
        send_small_messages_at_once(socket);
        return socket;
      }
    }
    const std::string failure = base::text("cannot connect to ", place(address, port), ": ", cause(error));
    if (out_of_descriptors(error)) throw base::RunError(failure);
    if (Clock::now() >= deadline) throw Unreachable(failure);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Socket begin_connecting(const std::string& address, int port) {
  const Addresses addresses = resolve(address, port, SOCK_STREAM);
  Socket socket = open_socket(*addresses);
  if (!socket.is_open()) return socket;
  never_block(socket);
  send_small_messages_at_once(socket);
  const bool begun = connect(socket.fd(), addresses->ai_addr, addresses->ai_addrlen) == 0;
  if (!begun && errno != EINPROGRESS) socket.close();
  return socket;
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.is_open()) send_small_messages_at_once(socket);
  return socket;
}

void never_block(const Socket& socket) {
  fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) | O_NONBLOCK);
}

bool read_all(const Socket& socket, void* data, int64_t bytes, int64_t timeout_ns) {
  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(timeout_ns);
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    if (!wait_for(socket, POLLIN, deadline)) return false;
    const ssize_t got = recv(socket.fd(), next, static_cast<size_t>(bytes), 0);
    if (got <= 0) return false;
    next += got;
    bytes -= got;
  }
  return true;
}

bool write_all(const Socket& socket, const void* data, int64_t bytes) {
  return send(socket.fd(), data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) == bytes;
}

std::string address_towards(const std::string& address) {
  const Addresses addresses = resolve(address, kDiscardPort, SOCK_DGRAM);
  int error = 0;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const Socket probe = open_socket(*one);
    if (probe.is_open() && connect(probe.fd(), one->ai_addr, one->ai_addrlen) == 0) return address_of(probe);
    error = errno;
  }
  throw base::RunError(base::text("no way from here to ", address, ": ", cause(error)));
}

std::vector<std::string> interface_addresses() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, &freeifaddrs);
  std::vector<std::string> addresses;
  for (const auto& [family, size] : {std::pair<int, socklen_t>{AF_INET, sizeof(sockaddr_in)},
                                     std::pair<int, socklen_t>{AF_INET6, sizeof(sockaddr_in6)}}) {
    for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
      const bool counts = one->ifa_addr != nullptr && one->ifa_addr->sa_family == family &&
                          (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
      if (counts) addresses.push_back(in_figures(one->ifa_addr, size));
    }
  }
  // An address with '%' belongs to one interface and means nothing to other machines.
  std::erase_if(addresses, [](const std::string& address) {
    return address.empty() || address.find('%') != std::string::npos;
  });
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace sluice::transport
