#include "serve/listening.h"

#include <httplib.h>

namespace sluice::serve {

int listen(httplib::Server& server, const std::string& host, int port) {
  // Not the library's own options, by which two servers may share a port.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  if (port == 0) return server.bind_to_any_port(host);
  return server.bind_to_port(host, port) ? port : -1;
}

}  // namespace sluice::serve
