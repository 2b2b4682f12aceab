// How bytes move between ranks: the interface that Gloo, NCCL, the host-staged transport and the
// in-process fake implement. It knows nothing of tensors.
//
// Ordering contract (NCCL's): the operations of one communicator are matched in the order in which each
// member issues them, there are no tags, and a send completes only when its peer has posted the receive.
// Callers therefore issue the same sequence of operations on all members; graph/verifier proves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::comm {

enum class DType : uint8_t { kFloat32, kFloat64, kBFloat16 };
int64_t size_of(DType dtype);

// An operation under way. wait() returns when the result may be used (host transports) or has been
// ordered before later work of the stream it was issued on (device transports). Throws base::RunError
// naming the communicator and the operation when a peer is lost or the timeout passes.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  // Whom wait() waited for longest: the member that came last, or whose bytes did. -1 where the transport
  // can't tell, or there is nobody.
  virtual int awaited_peer() const { return -1; }
};
using PendingPtr = std::unique_ptr<Pending>;

// One part of an exchange: `bytes` bytes to (send is set) or from (receive is set) member `peer`.
struct Message {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t bytes = 0;
  int peer = 0;
};

// A set of ranks that exchange bytes, seen from one member. Not thread-safe: one thread issues at a time.
// Buffers must stay alive and untouched until wait() has returned.
class Communicator {
 public:
  virtual ~Communicator() = default;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // this member's index in ranks()
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // world ranks, by member index

  // Every member gives `bytes`; `receive` holds size()·bytes, by member index.
  virtual PendingPtr all_gather(const void* send, void* receive, int64_t bytes) = 0;

  // Member j gets send_bytes[j] bytes; parts lie end to end by member index on both sides; zeros allowed.
  virtual PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                                std::span<const int64_t> receive_bytes) = 0;

  // `send` holds size()·count elements, part j for member j; `receive` gets the sum over members of this
  // member's part. Host transports add in member order: the same bits however the ranks were started.
  virtual PendingPtr reduce_scatter(const void* send, void* receive, int64_t count, DType dtype) = 0;

  // Point to point as one operation (NCCL's group): its messages progress independently of each other, so
  // a ring step or a swap between two ranks is one exchange. The j-th message to a peer meets the j-th
  // message that the peer receives from here. `peer` is never this member.
  virtual PendingPtr exchange(std::span<const Message> messages) = 0;

  // Exchanges of one message; `peer` is a member index.
  PendingPtr send(const void* data, int64_t bytes, int peer);
  PendingPtr receive(void* data, int64_t bytes, int peer);

 protected:
  Communicator(std::string name, std::vector<int> ranks, int rank)
      : name_(std::move(name)), ranks_(std::move(ranks)), rank_(rank) {}

 private:
  std::string name_;
  std::vector<int> ranks_;
  int rank_;
};

// One rank's door to the others.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Collective over `ranks` (ascending world ranks, this one among them): all of them call it with the
  // same name and ranks, and all calls of a process come in the same order everywhere. `name` is unique.
  // All communicators are made and warmed at start-up. A communicator of one rank copies.
  virtual std::unique_ptr<Communicator> communicator(const std::string& name,
                                                     const std::vector<int>& ranks) = 0;

  // Throws base::RunError when an operation issued earlier has failed since: device transports learn of some
  // failures only after they have issued. Host transports throw where they wait and have nothing to add.
  virtual void check() {}
};

// "float32", "float64", "bfloat16".
const char* name_of(DType dtype);

// destination[i] += source[i] for `count` elements (bfloat16 adds in float and rounds to nearest even).
void accumulate(void* destination, const void* source, int64_t count, DType dtype);

}  // namespace sluice::comm
