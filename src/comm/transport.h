// The interface for moving bytes between ranks, which Gloo, NCCL, the host-staged transport and the
// in-process fake implement. It does not know tensors.
//
// Ordering contract (NCCL's): the operations of one communicator match in the order in which each member
// issues them. There are no tags, and a send completes only when its peer has posted the receive. So callers
// must issue the same sequence of operations on all members; graph/verifier proves that they do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::comm {

enum class DType : uint8_t { kFloat32, kFloat64, kBFloat16 };
int64_t size_of(DType dtype);

// An operation in progress. wait() returns when the result may be used (host transports), or when it is
// ordered before later work of the operation's stream (device transports). Throws base::RunError naming the
// communicator and the operation if a peer is lost or the timeout passes.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  // wait(), then `order`, which lets a device's current stream wait for the operation: who counts waits counts
  // both.
  virtual void wait(const std::function<void()>& order) {
    wait();
    order();
  }
  // The member that wait() waited for longest: the last to arrive, or to deliver its bytes. -1 if the
  // transport cannot tell, or there was no wait.
  virtual int awaited_peer() const { return -1; }
};
using PendingPtr = std::unique_ptr<Pending>;

// One message of an exchange: `bytes` bytes to (`send` is set) or from (`receive` is set) member `peer`.
struct Message {
  const void* send = nullptr;
  void* receive = nullptr;
  int64_t bytes = 0;
  int peer = 0;
};

// A set of ranks that exchange bytes, seen from one member. Not thread-safe: one thread issues at a time.
// Buffers must stay valid and unchanged until wait() has returned.
class Communicator {
 public:
  virtual ~Communicator() = default;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // this member's index in ranks()
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // world ranks, by member index

  // Every member sends `bytes` bytes; `receive` gets size()·bytes, by member index.
  virtual PendingPtr all_gather(const void* send, void* receive, int64_t bytes) = 0;

  // Member j gets send_bytes[j] bytes. Parts lie end to end by member index on both sides; sizes may be 0.
  virtual PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                                std::span<const int64_t> receive_bytes) = 0;

  // `send` has size()·count elements, part j for member j; `receive` gets the sum of the parts for this
  // member. Host transports add in member order, so that the bits do not depend on how ranks were started.
  virtual PendingPtr reduce_scatter(const void* send, void* receive, int64_t count, DType dtype) = 0;

  // Point-to-point messages as one operation (NCCL's group). They progress independently, so a ring step or a
  // swap between two ranks is one exchange. The j-th message to a peer matches the j-th message that the peer
  // receives from here. `peer` is never this member.
  virtual PendingPtr exchange(std::span<const Message> messages) = 0;

  // Exchanges with a single message; `peer` is a member index.
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

// One rank's access to all others.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Collective over `ranks` (ascending world ranks, including this one). All of them call it with the same
  // name and ranks, and all ranks make their calls in the same order. `name` is unique. All communicators are
  // made and warmed up at start. A communicator of one rank copies.
  virtual std::unique_ptr<Communicator> communicator(const std::string& name,
                                                     const std::vector<int>& ranks) = 0;

  // Throws base::RunError if an operation has failed after it was issued: device transports learn of some
  // failures only then. Host transports throw while waiting and need no check.
  virtual void check() {}
};

// "float32", "float64", "bfloat16".
const char* name_of(DType dtype);

// destination[i] += source[i] for `count` elements (bfloat16 adds in float and rounds to nearest even).
void accumulate(void* destination, const void* source, int64_t count, DType dtype);

}  // namespace sluice::comm
