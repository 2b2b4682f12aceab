// N ranks in one process, for tests: a Transport with NCCL's semantics and worse luck. Every rank is one or
// several threads. Operations rendezvous (nothing is buffered), a communicator's operations run one at a
// time in the order of issue, there are no tags, and each transfer ends after a random delay.
//
// What goes wrong becomes a base::RunError at every waiter:
// - mismatch: members issue different collectives, sizes or types at the same place of a communicator;
// - deadlock: registered threads wait for operations that can never end; the message prints the cycle;
// - a Pending is destroyed before its operation ended; a wait lasts longer than the timeout.
// After the first error the world has failed and every later call throws it again.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/fake_options.h"
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

  // Rank `rank`'s door. Making a communicator does not block, but its order is checked: two ranks make the
  // communicators that they share in the same order.
  std::unique_ptr<Transport> transport(int rank);

  // Says that one thread acts for a rank as long as this object lives, so that deadlocks are found at once:
  // a rank whose registered threads all wait can issue nothing. Register all threads of a rank that wait,
  // and all before the first of them leaves; it may be done before the threads start. A rank without any is
  // taken to be able to issue at any time.
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
