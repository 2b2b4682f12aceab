// How servers of this module come to their ports. For its sources alone.
#pragma once

#include <string>

namespace httplib {
class Server;
}

namespace sluice::serve {

// The port that the server listens at from now on, `port` or with 0 any; −1: it cannot be had. No port is
// shared with another server.
int listen(httplib::Server& server, const std::string& host, int port);

}  // namespace sluice::serve
