// One rank's way round its rings: blocks go to the next lane while others come from the one before.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>

#include "comm/transport.h"

namespace sluice::layers {

// All rings of a rank share one communicator, which nothing else uses: a rank is in one ring at a time, and
// in the same order as the others of the ring. Used by one thread at a time.
class RingChannel {
 public:
  // A transfer under way. On a GPU it runs beside the current stream, which wait() puts behind it.
  class Passing {
   public:
    Passing(comm::WorkPtr work, std::optional<c10::Event> done)
        : work_(std::move(work)), done_(std::move(done)) {}
    void wait(const at::Device& device);

   private:
    comm::WorkPtr work_;
    std::optional<c10::Event> done_;
  };

  explicit RingChannel(comm::Communicator& communicator) : communicator_(communicator) {}

  // One exchange: dense `send` to member `next`, dense `receive` from member `previous`. Both stay untouched
  // until wait(); empty ones do not travel.
  Passing pass(const at::Tensor& send, int next, const at::Tensor& receive, int previous);

  int64_t sent_bytes() const { return sent_bytes_; }  // since it was made

 private:
  comm::WorkPtr exchange(const at::Tensor& send, int next, const at::Tensor& receive, int previous);

  comm::Communicator& communicator_;
  std::optional<c10::Stream> stream_;  // of a GPU
  int64_t sent_bytes_ = 0;
};

}  // namespace sluice::layers
