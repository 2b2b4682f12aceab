// Generation by several ranks that have one model between them. One rank leads: it takes the requests, and
// before each engine step sends the others' generators the calls that its own got.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "comm/transport.h"
#include "generate/generator.h"

namespace sluice::generate {

// The leader's side: member 0 of a communicator that moves host memory. Errors are the communicator's.
class Followers {
 public:
  // Null: the leader is alone.
  explicit Followers(comm::Communicator* members) : members_(members) {}

  // Records a call of the leader's generator, sent with the next command. The others do not evaluate stop
  // conditions: the leader aborts the sequences that these end.
  void add(const inference::Request& request, const SamplingParams& sampling_params);
  void abort(int64_t sequence);

  enum class Command : int64_t { kEngineStep, kWait, kMessage, kEnd };
  // The others take the next engine step.
  void engine_step() { send(Command::kEngineStep); }
  // There is nothing to do yet. Sent now and then, so that no rank takes the leader for lost.
  void wait() { send(Command::kWait); }
  // The others' MessageHandler gets the message between two engine steps: new parameters, for instance.
  void broadcast(const std::string& message);
  void end() { send(Command::kEnd); }

 private:
  void send(Command command);

  comm::Communicator* members_;  // borrowed
  base::Json calls_ = base::Json::array();
};

// The others' side: follows the leader's commands until kEnd. REQUIRES: a generator made as the leader's.
using MessageHandler = std::function<void(const std::string& message)>;
void follow(comm::Communicator& members, Generator& generator, const MessageHandler& handle_message = {});

}  // namespace sluice::generate
