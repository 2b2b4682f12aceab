#include "layers/lane_channel.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace sluice::layers {

void LaneChannel::Passing::wait(const at::Device& device) {
  work_->wait();
  if (done_) done_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

comm::WorkPtr LaneChannel::issue(std::span<const Parcel> parcels) {
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
  return communicator_.exchange(messages);
}

LaneChannel::Passing LaneChannel::exchange(std::span<const Parcel> parcels) {
  SLUICE_ASSERT(!parcels.empty(), "lanes exchange nothing");
  const at::Device device = parcels.front().tensor.device();
  if (device.is_cpu()) return {issue(parcels), std::nullopt};
  const c10::impl::VirtualGuardImpl streams(device.type());
  if (!stream_) stream_ = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  c10::Event ready(device.type());
  ready.record(streams.getStream(device));
  ready.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  for (const Parcel& parcel : parcels) parcel.tensor.record_stream(*stream_);
  comm::WorkPtr work = issue(parcels);
  c10::Event done(device.type());
  done.record(*stream_);
  return {std::move(work), std::move(done)};
}

}  // namespace sluice::layers
