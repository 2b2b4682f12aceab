// N ranks in one process, for tests: a Transport with NCCL's semantics and worse luck. Every rank has one or
// several threads. Operations rendezvous (nothing is buffered). A communicator's operations run one at a time
// in the order of issue. There are no tags, and each transfer ends after a random delay.
//
// Faults become a base::RunError at every waiter:
// - mismatch: Members issue different collectives, sizes or types at the same place of a communicator;
// - deadlock: Registered threads wait for operations that can never end; the message prints the cycle;
// - other: A Pending is destroyed before its operation ended, or a wait lasts longer than the timeout.
// After the first error the world has failed and every later call throws it again.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/test_fake_options.h"
#include "comm/transport.h"

namespace sluice::comm {

namespace fake {
class World;
}

// Thread-safe. Transports, communicators and participants may outlive it.
class FakeWorld {
 public:
  explicit FakeWorld(int world_size, FakeOptions options = {});
  ~FakeWorld();

  // The transport of rank `rank`. Making a communicator does not block, but its order is checked: any two
  // ranks must make their common communicators in the same order.
  std::unique_ptr<Transport> transport(int rank);

  // Registers a thread of a rank during this object's lifetime, so that deadlocks are found at once: a rank
  // whose registered threads all wait cannot issue anything. Register all threads of a rank that wait, before
  // the first of them leaves; registering before they start is possible. A rank without any registered thread
  // is assumed able to issue at any time.
  class Participant {
   public:
    Participant(FakeWorld& world, int rank);
    Participant(Participant&&) noexcept = default;
    Participant& operator=(Participant&&) = delete;
    ~Participant();

   private:
    std::shared_ptr<fake::World> world_;
    int rank_;
  };

 private:
  std::shared_ptr<fake::World> world_;
};

}  // namespace sluice::comm
