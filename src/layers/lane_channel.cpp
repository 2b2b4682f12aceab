#include "layers/lane_channel.h"

#include <vector>

#include "base/error.h"

namespace sluice::layers {

comm::PendingPtr LaneChannel::issue(comm::Communicator& communicator, std::span<const Parcel> parcels) {
  std::vector<comm::Message> messages;
  for (const auto& [tensor, member, way] : parcels) {
    SLUICE_ASSERT(tensor.is_contiguous(), "what lanes exchange is dense");
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes == 0) continue;
    if (way == Parcel::Way::kFrom) {
      messages.push_back({.receive = tensor.mutable_data_ptr(), .bytes = bytes, .peer = member});
    } else {
      messages.push_back({.send = tensor.const_data_ptr(), .bytes = bytes, .peer = member});
      sent_bytes_ += bytes;
    }
  }
  return communicator.exchange(messages);
}

Passing LaneChannel::exchange(std::span<const Parcel> parcels, Order order) {
  SLUICE_ASSERT(!parcels.empty(), "lanes exchange nothing");
  Queue& queue = order == Order::kBeside ? beside_ : queue_;
  return queue.stream.run(
      parcels.front().tensor.device(),
      [&](const SideStream::Visitor& visit) {
        for (const Parcel& parcel : parcels) visit(parcel.tensor);
      },
      [&] { return issue(queue.communicator, parcels); });
}

}  // namespace sluice::layers
