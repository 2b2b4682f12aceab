#include "runtime/fsdp_channel.h"

#include "base/error.h"

namespace sluice::runtime {

FsdpChannel::Passing FsdpChannel::gather(const at::Tensor& own, const at::Tensor& whole,
                                         const std::vector<int>& of) {
  const auto bytes = static_cast<int64_t>(own.nbytes());
  SLUICE_ASSERT(static_cast<int64_t>(whole.nbytes()) == bytes * std::ssize(of), "a gather takes all parts");
  SLUICE_ASSERT(own.is_contiguous() && whole.is_contiguous(), "what lanes share is dense");
  if (std::ssize(of) < members()) return gather_of_some(own, whole, of);
  moved_bytes_ += bytes * (members() - 1);
  return beside_.run(
      whole.device(),
      [&](const layers::SideStream::Visitor& visit) {
        visit(own);
        visit(whole);
      },
      [&] { return group_.all_gather(own.const_data_ptr(), whole.mutable_data_ptr(), bytes); });
}

// Each member sends directly to each other member.
FsdpChannel::Passing FsdpChannel::gather_of_some(const at::Tensor& own, const at::Tensor& whole,
                                                 const std::vector<int>& of) {
  std::vector<Parcel> parcels;
  for (size_t i = 0; i < of.size(); ++i) {
    const at::Tensor part = whole.narrow(0, static_cast<int64_t>(i) * own.numel(), own.numel());
    if (of[i] == member()) {
      part.copy_(own);
      continue;
    }
    parcels.push_back({own, of[i], /*sent=*/true});
    parcels.push_back({part, of[i], /*sent=*/false});
  }
  return exchange(parcels, own.device());
}

FsdpChannel::Passing FsdpChannel::exchange(const std::vector<Parcel>& parcels, const at::Device& device) {
  std::vector<comm::Message> messages;
  for (const Parcel& parcel : parcels) {
    SLUICE_ASSERT(parcel.tensor.is_contiguous(), "what lanes share is dense");
    const auto bytes = static_cast<int64_t>(parcel.tensor.nbytes());
    if (bytes == 0) continue;
    if (parcel.sent) {
      messages.push_back({parcel.tensor.const_data_ptr(), nullptr, bytes, parcel.peer});
      moved_bytes_ += bytes;
    } else {
      messages.push_back({nullptr, parcel.tensor.mutable_data_ptr(), bytes, parcel.peer});
    }
  }
  const auto for_each_tensor = [&](const layers::SideStream::Visitor& visit) {
    for (const Parcel& parcel : parcels) visit(parcel.tensor);
  };
  return beside_.run(device, for_each_tensor, [&] { return group_.exchange(messages); });
}

}  // namespace sluice::runtime
