// Messages between processes of one run, each with a proof that its sender knows the run's key. No threads
// and no blocking calls: supervisors (survive/supervisor.h) use it and must be free to fork.
//
// Each direction between two processes has a connection of its own, kept open: its end shows that the peer is
// gone. It begins with a proof, so that strangers, however many, displace only other strangers.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport/run_key.h"
#include "transport/socket.h"

namespace sluice::transport {

using Place = std::pair<std::string, int>;  // address, port

// Not thread-safe.
class Mail {
 public:
  // Others connect to `listener`.
  Mail(Socket listener, RunKey key);

  // Connects unless already connected. If `to` cannot be reached, serve() reports it as gone.
  void connect(const Place& to);
  // Sends in the order of calls. Messages are lost if the connection breaks.
  void send(const Place& to, const std::string& message);

  struct News {
    std::vector<std::string> messages;  // complete, with a valid proof
    // Peers whose connection broke or could not be made. Messages that they sent before are in `messages`.
    std::vector<Place> gone;
  };
  // Adds what poll() should wait for. Then serve() reads and writes as much as possible without blocking.
  void watch(std::vector<pollfd>& entries) const;
  News serve();
  // Whether all messages were handed to the operating system.
  bool is_sent() const;

  // Closes this process's descriptors, as a forked child must.
  void close();

 private:
  struct Outgoing {
    Socket socket;
    std::string unsent;
  };
  struct Incoming {
    Socket socket;
    std::string received;
    bool proved = false;  // from a process of this run
  };

  void accept_all();
  void forget_strangers();
  bool read(Incoming& incoming, std::vector<std::string>& messages) const;
  bool write(Outgoing& outgoing) const;

  Socket listener_;
  RunKey key_;
  std::map<Place, Outgoing> outgoing_;
  std::list<Incoming> incoming_;
  std::vector<Place> unreachable_;  // found while connecting, to be reported by serve()
};

}  // namespace sluice::transport
