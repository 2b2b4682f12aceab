#include "runtime/share_channel.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <numeric>
#include <utility>

#include "base/error.h"

namespace sluice::runtime {

template <typename Issue>
ShareChannel::Passing ShareChannel::beside(const at::Tensor& from, const at::Tensor& to, const Issue& issue) {
  SLUICE_ASSERT(from.is_contiguous() && to.is_contiguous(), "what lanes share is dense");
  const at::Device device = to.device();
  if (device.is_cpu()) return {issue(), std::nullopt};
  const c10::impl::VirtualGuardImpl streams(device.type());
  if (!stream_) stream_ = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  c10::Event ready(device.type());
  ready.record(streams.getStream(device));
  ready.block(*stream_);
  const c10::StreamGuard guard(*stream_);
  for (const at::Tensor& tensor : {from, to}) tensor.record_stream(*stream_);
  comm::WorkPtr work = issue();
  c10::Event done(device.type());
  done.record(*stream_);
  return {std::move(work), std::move(done)};
}

ShareChannel::Passing ShareChannel::gather(const at::Tensor& own, const at::Tensor& whole) {
  const auto bytes = static_cast<int64_t>(own.nbytes());
  SLUICE_ASSERT(static_cast<int64_t>(whole.nbytes()) == bytes * members(), "a gather takes all parts");
  gathered_bytes_ += bytes * (members() - 1);
  return beside(own, whole,
                [&] { return group_.all_gather(own.const_data_ptr(), whole.mutable_data_ptr(), bytes); });
}

ShareChannel::Passing ShareChannel::scatter(const at::Tensor& parts, std::span<const int64_t> send_bytes,
                                            const at::Tensor& received,
                                            std::span<const int64_t> receive_bytes) {
  scattered_bytes_ += std::accumulate(send_bytes.begin(), send_bytes.end(), int64_t{0}) -
                      send_bytes[static_cast<size_t>(member())];
  return beside(parts, received, [&] {
    return group_.all_to_all(parts.const_data_ptr(), send_bytes, received.mutable_data_ptr(), receive_bytes);
  });
}

}  // namespace sluice::runtime
