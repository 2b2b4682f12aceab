// The CPU transport: one of libtorch's Gloo process groups over all ranks, whose connections all
// communicators share, each under tags of its own; connecting two ranks takes Gloo some ten milliseconds of
// waiting. Everything travels as point-to-point messages and is summed here in member order: the same bits
// however the ranks were started.
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
  std::string address;                       // how others reach this rank; "": found out
  int64_t join_timeout_ns = 60'000'000'000;  // for all ranks to show up, and to make their first connections
  int64_t timeout_ns = 1'800'000'000'000;    // of one operation: a backstop behind the heartbeat
};

// Joins the other ranks; collective over all of them. Rank 0 serves the store at launch.master_address,
// unless torchrun's agent does. Throws RunError naming the ranks that did not join in time, at every rank
// that did. Communicators throw RunError naming communicator, operation and peer when one of their ranks is
// gone or the timeout passes.
std::unique_ptr<comm::Transport> gloo_transport(const GlooOptions& options);

// Before there are communicators, and by processes that make none: hands every rank's text, rank by rank, to
// rank 0, and what it answers to `hear` of all. Rank 0 returns when all have heard, or the time to join is
// over: it serves the store. Collective; throws as gloo_transport.
void rendezvous(const GlooOptions& options, const std::string& own,
                const std::function<std::string(const std::vector<std::string>&)>& answer,
                const std::function<void(const std::string&)>& hear);

// options.address, or else this machine's address on the way to rank 0.
std::string own_address(const GlooOptions& options);

}  // namespace sluice::transport
