// Collectives made of point-to-point messages, for transports that only implement posting of messages (Gloo,
// host-staged). Sums are computed on the host in member order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace sluice::comm {

// An operation that has already completed.
PendingPtr finished();

// Reusable buffers that reduce_scatter receives into. Thread-safe.
class StagingPool;

class ExchangeCommunicator : public Communicator {
 public:
  PendingPtr all_gather(const void* send, void* receive, int64_t bytes) final;
  PendingPtr all_to_all(const void* send, std::span<const int64_t> send_bytes, void* receive,
                        std::span<const int64_t> receive_bytes) final;
  PendingPtr reduce_scatter(const void* send, void* receive, int64_t count, DType dtype) final;
  PendingPtr exchange(std::span<const Message> messages) final;

 protected:
  ExchangeCommunicator(std::string name, std::vector<int> ranks, int rank);
  ~ExchangeCommunicator() override;

  struct Operation {
    const char* kind = "";    // "all_gather", "send", …: for errors
    int64_t position = 0;     // number of operations that this member issued before
    bool collective = false;  // collectives and point-to-point never match each other
  };

  // Posts all messages at once and returns. No message is empty or to this member itself. Messages of one
  // pair and kind (collective or not) match in order.
  virtual PendingPtr post(const Operation& operation, std::span<const Message> messages) = 0;

 private:
  PendingPtr post_collective(const char* kind, const std::vector<Message>& messages);

  int64_t issued_ = 0;
  std::shared_ptr<StagingPool> pool_;
};

// A communicator of the single world rank `rank`, which copies at once. Every transport uses it.
std::unique_ptr<Communicator> lone_communicator(const std::string& name, int rank);

}  // namespace sluice::comm
