// Ranks that have a model between them, of which one hears what is to be said: it leads, and before each pass
// tells the others' generators what its own was told.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "comm/transport.h"
#include "generate/generator.h"

namespace sluice::generate {

// The leader's side: member 0 of a communicator that moves host memory. Throws what that throws.
class Followers {
 public:
  // Null: the leader is alone, and tells nobody.
  explicit Followers(comm::Communicator* members) : members_(members) {}

  // What its generator was told since the last pass, in that order. What ends a text otherwise than its
  // tokens (Manner::ends) the others don't know: such texts are dropped before the next pass.
  void add(const inference::Request& request, const SamplingParams& sampling_params);
  void abort(int64_t text);

  // The others go through the next pass; or have nothing to do yet, so that nobody loses patience; or are
  // done.
  enum class Command : int64_t { kEngineStep, kWait, kMessage, kEnd };
  void engine_step() { tell(Command::kEngineStep); }
  void wait() { tell(Command::kWait); }
  // They take this, as they know how to: another model, say.
  void broadcast(const std::string& what);
  void end() { tell(Command::kEnd); }

 private:
  void tell(Command order);

  comm::Communicator* members_;  // borrowed
  base::Json told_ = base::Json::array();
};

// The others' side: does what the leader says until it is done. REQUIRES: a generator made as the leader's.
using MessageHandler = std::function<void(const std::string& what)>;
void follow(comm::Communicator& members, Generator& generator, const MessageHandler& take = {});

}  // namespace sluice::generate
