#include "layers/side_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace sluice::layers {

void Passing::wait(const at::Device& device) {
  if (!done_) return transfer_->wait();
  transfer_->wait([&] { done_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device)); });
}

Passing SideStream::run(const at::Device& device, const std::function<void(const Visitor&)>& for_each_tensor,
                        const std::function<comm::PendingPtr()>& issue) {
  if (device.is_cpu()) return {issue(), std::nullopt};
  const c10::impl::VirtualGuardImpl streams(device.type());
  if (!stream_) stream_ = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  c10::Event ready(device.type());
  ready.record(streams.getStream(device));
  ready.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  for_each_tensor([this](const at::Tensor& tensor) { tensor.record_stream(*stream_); });
  comm::PendingPtr transfer = issue();
  c10::Event done(device.type());
  done.record(*stream_);
  return {std::move(transfer), std::move(done)};
}

}  // namespace sluice::layers
