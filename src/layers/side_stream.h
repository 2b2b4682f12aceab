// Transfers of a rank that run beside its computation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <functional>
#include <optional>
#include <utility>

#include "comm/transport.h"

namespace sluice::layers {

// A transfer in flight. On a GPU it runs beside the current stream; wait() makes this stream wait for it.
class Passing {
 public:
  Passing(comm::PendingPtr transfer, std::optional<c10::Event> done)
      : transfer_(std::move(transfer)), done_(std::move(done)) {}
  void wait(const at::Device& device);

 private:
  comm::PendingPtr transfer_;
  std::optional<c10::Event> done_;
};

// A queue for transfers: on a GPU a stream of its own, made with the first transfer. Used by one thread at a
// time.
class SideStream {
 public:
  // Transfers that `issue` starts on `device` begin after all work that the current stream has been given.
  // `for_each_tensor` calls its argument with every tensor that the transfer reads or writes.
  using Visitor = std::function<void(const at::Tensor&)>;
  Passing run(const at::Device& device, const std::function<void(const Visitor&)>& for_each_tensor,
              const std::function<comm::PendingPtr()>& issue);

 private:
  std::optional<c10::Stream> stream_;  // on GPUs
};

}  // namespace sluice::layers
