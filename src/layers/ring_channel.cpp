#include "layers/ring_channel.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace sluice::layers {

void RingChannel::Passing::wait(const at::Device& device) {
  work_->wait();
  if (done_) done_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

comm::WorkPtr RingChannel::exchange(const at::Tensor& send, int next, const at::Tensor& receive,
                                    int previous) {
  const auto bytes_of = [](const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); };
  std::vector<comm::Message> messages;
  if (receive.numel() > 0) {
    messages.push_back({.receive = receive.mutable_data_ptr(), .bytes = bytes_of(receive), .peer = previous});
  }
  if (send.numel() > 0) {
    messages.push_back({.send = send.const_data_ptr(), .bytes = bytes_of(send), .peer = next});
    sent_bytes_ += bytes_of(send);
  }
  return communicator_.exchange(messages);
}

RingChannel::Passing RingChannel::pass(const at::Tensor& send, int next, const at::Tensor& receive,
                                       int previous) {
  SLUICE_ASSERT(send.is_contiguous() && receive.is_contiguous(), "a ring's blocks are dense");
  const at::Device device = send.device();
  if (device.is_cpu()) return {exchange(send, next, receive, previous), std::nullopt};
  const c10::impl::VirtualGuardImpl streams(device.type());
  if (!stream_) stream_ = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  c10::Event ready(device.type());
  ready.record(streams.getStream(device));
  ready.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  for (const at::Tensor& tensor : {send, receive}) tensor.record_stream(*stream_);
  comm::WorkPtr work = exchange(send, next, receive, previous);
  c10::Event done(device.type());
  done.record(*stream_);
  return {std::move(work), std::move(done)};
}

}  // namespace sluice::layers
