#include "train/control.h"

#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace sluice::train {

namespace {

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Control::Control(comm::Transport& transport)
    : communicator_(transport.communicator("control", all_ranks(transport.world_size()))) {}

std::vector<std::vector<int64_t>> Control::gather(std::span<const int64_t> words) {
  const auto ranks = static_cast<size_t>(world_size());
  std::vector<int64_t> all(words.size() * ranks);
  communicator_->all_gather(words.data(), all.data(), static_cast<int64_t>(words.size_bytes()))->wait();
  std::vector<std::vector<int64_t>> by_rank;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * words.size());
    by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(words.size()));
  }
  return by_rank;
}

std::string Control::broadcast(const std::string& text) {
  const int64_t own_size = static_cast<int64_t>(text.size());
  const int64_t size = gather({&own_size, 1})[0][0];
  std::vector<int64_t> send_bytes(static_cast<size_t>(world_size()), rank() == 0 ? size : 0);
  std::vector<int64_t> receive_bytes(static_cast<size_t>(world_size()), 0);
  receive_bytes[0] = size;
  std::string copies;
  for (int peer = 0; rank() == 0 && peer < world_size(); ++peer) copies += text;
  std::string received(static_cast<size_t>(size), '\0');
  communicator_->all_to_all(copies.data(), send_bytes, received.data(), receive_bytes)->wait();
  return received;
}

void Control::barrier() {
  const int64_t nothing = 0;
  gather({&nothing, 1});
}

void Control::agree_on_failures(const std::string& what, std::exception_ptr own) {
  const int64_t failed = own ? 1 : 0;
  std::vector<std::string> failed_ranks;
  const auto all = gather({&failed, 1});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] != 0) failed_ranks.push_back(std::to_string(rank));
  }
  if (own) std::rethrow_exception(own);
  if (!failed_ranks.empty()) {
    throw base::RunError(
        base::text(what, " failed on rank ", base::join(failed_ranks, ", "), ": see its log"));
  }
}

}  // namespace sluice::train
