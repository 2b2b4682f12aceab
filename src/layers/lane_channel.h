// One rank's channel to the other lanes that share its sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "comm/transport.h"
#include "layers/side_stream.h"

namespace sluice::layers {

// All of a rank's micro-batches that span several lanes share one communicator, which has no other use. A
// rank runs one of these micro-batches at a time, in the same order as the other lanes. Used by one thread at
// a time.
class LaneChannel {
 public:
  // A dense tensor that is sent to or received from another member. Empty tensors do not travel.
  struct Parcel {
    enum class Way : uint8_t { kTo, kFrom };
    at::Tensor tensor;
    int member = -1;
    Way way = Way::kTo;
  };

  // `beside`: a communicator of the same members for long transfers, which run while other parcels come and
  // go; null: they share the first communicator.
  explicit LaneChannel(comm::Communicator& communicator, comm::Communicator* beside = nullptr)
      : queue_{communicator, {}}, beside_{beside != nullptr ? *beside : communicator, {}} {}

  // Starts all parcels at once; their tensors stay untouched until wait(). Within an Order, the j-th parcel
  // to a member matches the j-th that it receives from here. REQUIRES: at least one, all on one device.
  enum class Order : uint8_t { kOneByOne, kBeside };  // after parcels that were started before; beside them
  Passing exchange(std::span<const Parcel> parcels, Order order = Order::kOneByOne);

  int64_t sent_bytes() const { return sent_bytes_; }  // since construction

 private:
  struct Queue {
    comm::Communicator& communicator;
    SideStream stream;
  };
  comm::PendingPtr issue(comm::Communicator& communicator, std::span<const Parcel> parcels);

  Queue queue_, beside_;
  int64_t sent_bytes_ = 0;
};

}  // namespace sluice::layers
