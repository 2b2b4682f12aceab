#include "profile/ranks.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "profile/timing.h"

namespace sluice::profile {

std::vector<int> all_ranks(const comm::Transport& transport) {
  std::vector<int> ranks(static_cast<size_t>(transport.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Ranks::Ranks(comm::Transport& transport, const std::string& name, c10::Device device)
    : device_(device), communicator_(transport.communicator(name, all_ranks(transport))) {}

at::Tensor Ranks::bytes(int64_t count) const {
  return at::empty({count}, at::TensorOptions().dtype(c10::ScalarType::Byte).device(device_));
}

void Ranks::barrier() { agree(0); }

int64_t Ranks::agree(int64_t value) {
  const auto width = static_cast<int64_t>(sizeof value);
  at::Tensor own = bytes(width).cpu();
  std::memcpy(own.mutable_data_ptr(), &value, sizeof value);
  own = own.to(device_);
  const at::Tensor all = bytes(width * communicator_->size());
  communicator_->all_gather(own.const_data_ptr(), all.mutable_data_ptr(), width)->wait();
  synchronize(device_);
  std::memcpy(&value, all.cpu().const_data_ptr(), sizeof value);
  return value;
}

std::string Ranks::broadcast(const std::string& text) {
  const int64_t size = agree(static_cast<int64_t>(text.size()));
  at::Tensor message = bytes(size).cpu();
  if (communicator_->rank() == 0) std::memcpy(message.mutable_data_ptr(), text.data(), text.size());
  message = message.to(device_);
  if (communicator_->rank() > 0) {
    communicator_->receive(message.mutable_data_ptr(), size, 0)->wait();
  } else {
    for (int peer = 1; peer < communicator_->size(); ++peer) {
      communicator_->send(message.const_data_ptr(), size, peer)->wait();
    }
  }
  synchronize(device_);
  const at::Tensor result = message.cpu();
  const auto* first = static_cast<const char*>(result.const_data_ptr());
  return {first, first + size};
}

}  // namespace sluice::profile
