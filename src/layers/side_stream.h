// Transfers of a rank that run beside what it computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <functional>
#include <optional>
#include <utility>

#include "comm/transport.h"

namespace sluice::layers {

// A transfer under way. On a GPU it runs beside the current stream, which wait() puts behind it.
class Passing {
 public:
  Passing(comm::PendingPtr transfer, std::optional<c10::Event> done)
      : transfer_(std::move(transfer)), done_(std::move(done)) {}
  void wait(const at::Device& device);

 private:
  comm::PendingPtr transfer_;
  std::optional<c10::Event> done_;
};

// A queue for transfers: on a GPU a stream of its own, from the first transfer on. Used by one thread at a
// time.
class SideStream {
 public:
  // What `issue` starts on `device` begins when all that the current stream has been given is done.
  // `for_each_tensor` calls its argument with every tensor that the transfer reads or writes.
  using Visitor = std::function<void(const at::Tensor&)>;
  Passing run(const at::Device& device, const std::function<void(const Visitor&)>& for_each_tensor,
              const std::function<comm::PendingPtr()>& issue);

 private:
  std::optional<c10::Stream> stream_;  // of a GPU
};

}  // namespace sluice::layers
