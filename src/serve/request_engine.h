// The engine that a server asks for the work of its requests: an engine that generates, or one that has a
// head's numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"

namespace sluice::serve {

// Nothing is computed here any more: the server stops, or its model's ranks are lost. Another server may be
// asked.
class Unavailable : public base::RunError {
 public:
  using RunError::RunError;
};

// Counts for monitoring.
struct EngineStats {
  int64_t requests = 0;  // that were ever taken
  int64_t refused = 0;   // for want of room
  int64_t aborted = 0;   // by their clients, before the end
  int64_t generated_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t engine_steps = 0;
  int64_t preemptions = 0;
  int64_t running = 0;  // texts
  int64_t waiting = 0;
  int64_t clients = 0;  // that have texts
  int64_t free_kv_blocks = 0;
  int64_t kv_blocks = 0;
};

// Thread-safe.
class RequestEngine {
 public:
  virtual ~RequestEngine() = default;

  // Runs `action`, which replaces the model's parameters, on the engine's thread between two steps. Returns
  // when it has run, and throws what it threw; false when the engine ends before. The engine's other ranks,
  // where it has some, are told to take `others` at that moment.
  virtual bool between_steps(const std::function<void()>& action, const std::string& others) = 0;

  // Ends all requests with Unavailable, which says `why`, and takes no others. Returns when that has been
  // done.
  virtual void stop(const std::string& why) = 0;

  virtual EngineStats stats() const = 0;
  // Why nothing is computed any more, or "".
  virtual std::string fault() const = 0;
};

}  // namespace sluice::serve
