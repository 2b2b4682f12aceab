// The engine behind a server: it generates text (engine.h) or computes a head's numbers (head_engine.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"

namespace sluice::serve {

// Thrown if the engine computes nothing any more: the server stops,
// or ranks of its model are lost. Clients may try another server.
class Unavailable : public base::RunError {
 public:
  using RunError::RunError;
};

// Counts for monitoring.
struct EngineStats {
  int64_t requests = 0;  // accepted so far
  int64_t refused = 0;   // because queues were full
  int64_t aborted = 0;   // by their clients
  int64_t generated_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t engine_steps = 0;
  int64_t preemptions = 0;
  int64_t running = 0;  // sequences
  int64_t waiting = 0;  // likewise
  int64_t clients = 0;  // with requests
  int64_t free_kv_blocks = 0;
  int64_t kv_blocks = 0;
};

// Thread-safe.
class RequestEngine {
 public:
  virtual ~RequestEngine() = default;

  // Runs `action`, which replaces the model's parameters, on the engine's thread between two engine steps,
  // and sends `message` to the engine's other ranks at that moment. Returns when it has run, and rethrows its
  // error; false: the engine has ended before.
  virtual bool between_steps(const std::function<void()>& action, const std::string& message) = 0;

  // Ends all requests with Unavailable(why) and accepts no more. Returns when all have ended.
  virtual void stop(const std::string& why) = 0;

  virtual EngineStats stats() const = 0;
  // The reason why the engine has ended, or "".
  virtual std::string fault() const = 0;
};

}  // namespace sluice::serve
