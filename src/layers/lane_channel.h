// One rank's way to the other lanes that share its sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "comm/transport.h"
#include "layers/side_stream.h"

namespace sluice::layers {

// All units of a rank that lie on several lanes share one communicator, which nothing else uses: a rank is in
// one of them at a time, and in the same order as the others of the unit. Used by one thread at a time.
class LaneChannel {
 public:
  // A dense tensor that goes to another member or comes from it. Empty ones do not travel.
  struct Parcel {
    enum class Way : uint8_t { kTo, kFrom };
    at::Tensor tensor;
    int member = -1;
    Way way = Way::kTo;
  };

  explicit LaneChannel(comm::Communicator& communicator) : communicator_(communicator) {}

  // All parcels at once, each untouched until wait(). The j-th to a member meets the j-th that it has from
  // here. REQUIRES: at least one, all on one device.
  Passing exchange(std::span<const Parcel> parcels);

  int64_t sent_bytes() const { return sent_bytes_; }  // since it was made

 private:
  comm::PendingPtr issue(std::span<const Parcel> parcels);

  comm::Communicator& communicator_;
  SideStream beside_;
  int64_t sent_bytes_ = 0;
};

}  // namespace sluice::layers
