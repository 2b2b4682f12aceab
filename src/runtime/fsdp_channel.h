// One rank's channel to the lanes that share its parameters; transfers run beside computation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "comm/transport.h"
#include "layers/side_stream.h"

namespace sluice::runtime {

// One share group's. Used by one thread at a time; all members issue the same operations in the same order.
class FsdpChannel {
 public:
  using Passing = layers::Passing;

  explicit FsdpChannel(comm::Communicator& group) : group_(group) {}

  int members() const { return group_.size(); }
  int member() const { return group_.rank(); }

  // All-gather over the members `of`, this one among them: each gives `own`; `whole` takes them in their
  // order. Both are dense and stay untouched until wait().
  Passing gather(const at::Tensor& own, const at::Tensor& whole, const std::vector<int>& of);

  // A dense tensor that goes to a member, or comes from one. Empty ones do not travel.
  struct Parcel {
    at::Tensor tensor;
    int peer = 0;
    bool sent = false;
  };
  // Exchanges all parcels at once; parcels between two members arrive in their order. They stay untouched
  // until wait(). A member without parcels must call it, too.
  Passing exchange(const std::vector<Parcel>& parcels, const at::Device& device);

  // Since construction: bytes that gathers received from others and that exchanges sent to others.
  int64_t moved_bytes() const { return moved_bytes_; }

 private:
  Passing gather_of_some(const at::Tensor& own, const at::Tensor& whole, const std::vector<int>& of);

  comm::Communicator& group_;
  layers::SideStream beside_;
  int64_t moved_bytes_ = 0;
};

// By communicator, kept from step to step.
using FsdpChannels = std::map<comm::Communicator*, FsdpChannel>;

}  // namespace sluice::runtime
