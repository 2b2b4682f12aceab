// Messages between processes of one run, each proved to come from one that knows the run's key, without
// threads and without blocking: for supervisors (survive/supervisor.h), which must be free to fork.
//
// One connection a direction and peer, kept open: its end says that the peer is gone. It begins with a proof
// of its own, so that strangers, however many, push out none but strangers.
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
  // `listener` is where others send to.
  Mail(Socket listener, RunKey key);

  // Connects unless connected; what cannot reach `to` shows as it being gone.
  void connect(const Place& to);
  // Sends in the order of calls. Lost when the connection breaks.
  void send(const Place& to, const std::string& message);

  struct News {
    std::vector<std::string> messages;  // whole and proved
    // To which connections broke, or could not be made; what they sent before is among the messages.
    std::vector<Place> gone;
  };
  // Adds what poll should wait for; then serve() reads and writes whatever is possible.
  void watch(std::vector<pollfd>& entries) const;
  News serve();
  // Whether everything was handed to the system.
  bool is_sent() const;

  // Closes this process's copies, as a forked child does.
  void close();

 private:
  struct Outgoing {
    Socket socket;
    std::string unsent;
  };
  struct Incoming {
    Socket socket;
    std::string received;
    bool proved = false;  // it comes from a process of this run
  };

  void accept_all();
  void forget_strangers();
  bool read(Incoming& incoming, std::vector<std::string>& messages) const;
  bool write(Outgoing& outgoing) const;

  Socket listener_;
  RunKey key_;
  std::map<Place, Outgoing> outgoing_;
  std::list<Incoming> incoming_;
  std::vector<Place> unreachable_;  // found while connecting
};

}  // namespace sluice::transport
