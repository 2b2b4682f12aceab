// One rank's way to the lanes that share its parameters: gathers and sums run beside what it computes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "comm/transport.h"
#include "layers/side_stream.h"

namespace sluice::runtime {

// Of one share group. Used by one thread at a time; all members issue the same operations in the same order.
class ShareChannel {
 public:
  using Passing = layers::Passing;

  explicit ShareChannel(comm::Communicator& group) : group_(group) {}

  int members() const { return group_.size(); }
  int member() const { return group_.rank(); }

  // Every member gives `own`; `whole` takes them by member. Both are dense and stay untouched until wait().
  Passing gather(const at::Tensor& own, const at::Tensor& whole);
  // Member j gets send_bytes[j] of `parts`; likewise. Zeros do not travel.
  Passing scatter(const at::Tensor& parts, std::span<const int64_t> send_bytes, const at::Tensor& received,
                  std::span<const int64_t> receive_bytes);

  // Since it was made: what gathers received from others, and scatters sent to them.
  int64_t moved_bytes() const { return moved_bytes_; }

 private:
  Passing run_beside(const at::Tensor& from, const at::Tensor& to,
                     const std::function<comm::WorkPtr()>& issue);

  comm::Communicator& group_;
  layers::SideStream beside_;
  int64_t moved_bytes_ = 0;
};

// By their communicators, from step to step.
using ShareChannels = std::map<comm::Communicator*, ShareChannel>;

}  // namespace sluice::runtime
