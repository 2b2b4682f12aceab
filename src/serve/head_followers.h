// The ranks that share a model with a head. The first one receives
// requests and leads; before each batch it sends the others its texts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace sluice::serve {

using TokenTexts = std::vector<std::vector<int32_t>>;

// The leader's side: member 0 of a communicator that moves host memory. Errors are the communicator's.
class HeadFollowers {
 public:
  // Null: the leader is alone, and calls do nothing.
  explicit HeadFollowers(comm::Communicator* members) : members_(members) {}

  void compute(const TokenTexts& texts) const;    // announces the next batch, which is collective
  void wait() const;                              // no work yet; keeps followers from timing out
  void broadcast(const std::string& what) const;  // calls the followers' take(): a new model, for example
  void end() const;

 private:
  comm::Communicator* members_;  // borrowed
};

struct HeadFollowerActions {
  std::function<void(const TokenTexts& texts)> compute;
  std::function<void(const std::string& what)> take;
};

// The followers' side: runs the leader's commands until end().
void follow(comm::Communicator& members, const HeadFollowerActions& actions);

}  // namespace sluice::serve
