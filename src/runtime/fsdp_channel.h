// One rank's way to the lanes that share its parameters: gathers and sums run beside what it computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "comm/transport.h"
#include "layers/side_stream.h"

namespace sluice::runtime {

// Of one share group. Used by one thread at a time; all members issue the same operations in the same order.
class FsdpChannel {
 public:
  using Passing = layers::Passing;

  explicit FsdpChannel(comm::Communicator& group) : group_(group) {}

  int members() const { return group_.size(); }
  int member() const { return group_.rank(); }

  // Each of these members, this one among them, gives `own`; `whole` takes them in their order. Both are
  // dense and stay untouched until wait().
  Passing gather(const at::Tensor& own, const at::Tensor& whole, const std::vector<int>& of);

  // A dense tensor that goes to a member, or comes from one. Empty ones do not travel.
  struct Parcel {
    at::Tensor tensor;
    int peer = 0;
    bool sent = false;
  };
  // All at once; what one member sends another arrives in that order. They stay untouched until wait().
  // Where a member has none, too.
  Passing exchange(const std::vector<Parcel>& parcels, const at::Device& device);

  // Since it was made: what gathers received from others, and exchanges sent to them.
  int64_t moved_bytes() const { return moved_bytes_; }

 private:
  Passing gather_of_some(const at::Tensor& own, const at::Tensor& whole, const std::vector<int>& of);

  comm::Communicator& group_;
  layers::SideStream beside_;
  int64_t moved_bytes_ = 0;
};

// By their communicators, from step to step.
using FsdpChannels = std::map<comm::Communicator*, FsdpChannel>;

}  // namespace sluice::runtime
