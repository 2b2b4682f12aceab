// The CPU transport: one of libtorch's Gloo process groups over all ranks. All communicators share its
// connections, each under its own tags, because connecting two ranks costs Gloo some ten milliseconds. All
// data travels in point-to-point messages. Sums are computed here in member order, so results have the same
// bits whichever launcher started the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "transport/launch.h"

namespace sluice::transport {

struct GlooOptions {
  Launch launch;
  std::string address;                       // other ranks reach this rank here; "": determined automatically
  int64_t join_timeout_ns = 60'000'000'000;  // for all ranks to arrive and to make their first connections
  int64_t timeout_ns = 1'800'000'000'000;    // for one operation; the heartbeat normally notices first
};

// Joins the other ranks; collective over all of them. Rank 0 serves the store at launch.master_address,
// unless torchrun's agent does. Every rank that joined throws RunError naming the ranks that did not join in
// time. Communicators throw RunError naming communicator, operation and peer if one of their ranks is gone or
// the timeout passes.
std::unique_ptr<comm::Transport> gloo_transport(const GlooOptions& options);

// Exchanges texts without communicators. Rank 0 computes `answer` from every rank's text, in rank order, and
// every rank passes the answer to `hear`. Rank 0 serves the store, so it returns when all ranks have received
// the answer or the time to join is over. Collective; throws like gloo_transport.
void rendezvous(const GlooOptions& options, const std::string& own,
                const std::function<std::string(const std::vector<std::string>&)>& answer,
                const std::function<void(const std::string&)>& hear);

// options.address if it is set, else this machine's address on the route to rank 0.
std::string own_address(const GlooOptions& options);

}  // namespace sluice::transport
