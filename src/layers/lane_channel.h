// One rank's way to the other lanes that share its sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "comm/transport.h"
#include "layers/side_stream.h"

namespace sluice::layers {

// All micro-batches of a rank that lie on several lanes share one communicator, which nothing else uses: a
// rank is in one of them at a time, and in the same order as the others of the micro-batch. Used by one
// thread at a time.
class LaneChannel {
 public:
  // A dense tensor that goes to another member or comes from it. Empty ones do not travel.
  struct Parcel {
    enum class Way : uint8_t { kTo, kFrom };
    at::Tensor tensor;
    int member = -1;
    Way way = Way::kTo;
  };

  // `beside`: of the same members, for what is under way for longer while other parcels come and go; null:
  // nothing is.
  explicit LaneChannel(comm::Communicator& communicator, comm::Communicator* beside = nullptr)
      : queue_{communicator, {}}, beside_{beside != nullptr ? *beside : communicator, {}} {}

  // All parcels at once, each untouched until wait(). The j-th to a member meets the j-th that it has from
  // here, of those in the same order. REQUIRES: at least one, all on one device.
  enum class Order : uint8_t { kOneByOne, kBeside };  // behind those that were begun before; beside these
  Passing exchange(std::span<const Parcel> parcels, Order order = Order::kOneByOne);

  int64_t sent_bytes() const { return sent_bytes_; }  // since it was made

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
