// Ranks that have a model with a head between them. The first one hears requests and leads; before each batch
// it tells the others which texts it has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace sluice::serve {

using TokenTexts = std::vector<std::vector<int32_t>>;

// The leader's side: member 0 of a communicator that moves host memory. Throws what that throws.
class HeadFollowers {
 public:
  // Null: the leader is alone, and tells nobody.
  explicit HeadFollowers(comm::Communicator* members) : members_(members) {}

  void compute(const TokenTexts& texts) const;    // the next batch, which is collective
  void wait() const;                              // nothing yet, so that nobody loses patience
  void broadcast(const std::string& what) const;  // they take this, as they know how to: another model, say
  void end() const;

 private:
  comm::Communicator* members_;  // borrowed
};

struct HeadFollowerActions {
  std::function<void(const TokenTexts& texts)> compute;
  std::function<void(const std::string& what)> take;
};

// The others' side: does what the leader says until it ends.
void follow(comm::Communicator& members, const HeadFollowerActions& actions);

}  // namespace sluice::serve
