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
  const auto waiting = activity_.waiting();
  communicator_->all_gather(words.data(), all.data(), static_cast<int64_t>(words.size_bytes()))->wait();
  std::vector<std::vector<int64_t>> by_rank;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * words.size());
    by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(words.size()));
  }
  return by_rank;
}

std::string Control::broadcast(const std::string& text, int from) {
  const int64_t own_size = static_cast<int64_t>(text.size());
  const int64_t size = gather({&own_size, 1})[static_cast<size_t>(from)][0];
  std::vector<int64_t> send_bytes(static_cast<size_t>(world_size()), rank() == from ? size : 0);
  std::vector<int64_t> receive_bytes(static_cast<size_t>(world_size()), 0);
  receive_bytes[static_cast<size_t>(from)] = size;
  std::string copies;
  for (int peer = 0; rank() == from && peer < world_size(); ++peer) copies += text;
  std::string received(static_cast<size_t>(size), '\0');
  const auto waiting = activity_.waiting();
  communicator_->all_to_all(copies.data(), send_bytes, received.data(), receive_bytes)->wait();
  return received;
}

void Control::barrier() {
  const int64_t nothing = 0;
  gather({&nothing, 1});
}

int exit_status_of(std::exception_ptr error) {
  if (!error) return 0;
  try {
    std::rethrow_exception(error);
  } catch (const base::Error& own) {
    return own.exit_status();
  } catch (...) {
    return 1;
  }
}

void Control::agree_on_failures(const std::string& what, std::exception_ptr own) {
  const int64_t own_status = exit_status_of(own);
  std::vector<int> statuses;
  for (const auto& words : gather({&own_status, 1})) statuses.push_back(static_cast<int>(words[0]));
  throw_if_any_failed(what, statuses, own);
}

void Control::throw_if_any_failed(const std::string& what, std::span<const int> statuses,
                                  std::exception_ptr own) {
  for (int rank = 0; rank < world_size(); ++rank) {
    const int status = statuses[static_cast<size_t>(rank)];
    if (status == 0) continue;
    failure_agreed_ = true;
    if (rank == this->rank()) std::rethrow_exception(own);
    throw QuietError(base::text(what, " failed on rank ", rank), status);
  }
}

}  // namespace sluice::train
