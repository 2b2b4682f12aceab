// Shared by this module's tests: sends bytes to a local port and receives the answer.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace sluice::serve {

inline int connected(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(socket);
    return -1;
  }
  return socket;
}

// All that comes until the server closes the connection.
inline std::string received(int socket) {
  std::string all;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
    all.append(buffer, static_cast<size_t>(got));
  return all;
}

inline std::string exchange(int port, const std::string& bytes) {
  const int socket = connected(port);
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const std::string answer = received(socket);
  ::close(socket);
  return answer;
}

}  // namespace sluice::serve
