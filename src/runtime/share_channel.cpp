#include "runtime/share_channel.h"

#include <numeric>

#include "base/error.h"

namespace sluice::runtime {

ShareChannel::Passing ShareChannel::run_beside(const at::Tensor& from, const at::Tensor& to,
                                               const std::function<comm::WorkPtr()>& issue) {
  SLUICE_ASSERT(from.is_contiguous() && to.is_contiguous(), "what lanes share is dense");
  return beside_.run(
      to.device(),
      [&](const layers::SideStream::Visitor& visit) {
        visit(from);
        visit(to);
      },
      issue);
}

ShareChannel::Passing ShareChannel::gather(const at::Tensor& own, const at::Tensor& whole) {
  const auto bytes = static_cast<int64_t>(own.nbytes());
  SLUICE_ASSERT(static_cast<int64_t>(whole.nbytes()) == bytes * members(), "a gather takes all parts");
  moved_bytes_ += bytes * (members() - 1);
  return run_beside(own, whole,
                    [&] { return group_.all_gather(own.const_data_ptr(), whole.mutable_data_ptr(), bytes); });
}

ShareChannel::Passing ShareChannel::scatter(const at::Tensor& parts, std::span<const int64_t> send_bytes,
                                            const at::Tensor& received,
                                            std::span<const int64_t> receive_bytes) {
  moved_bytes_ += std::accumulate(send_bytes.begin(), send_bytes.end(), int64_t{0}) -
                  send_bytes[static_cast<size_t>(member())];
  return run_beside(parts, received, [&] {
    return group_.all_to_all(parts.const_data_ptr(), send_bytes, received.mutable_data_ptr(), receive_bytes);
  });
}

}  // namespace sluice::runtime
