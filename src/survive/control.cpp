#include "survive/control.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "base/failure.h"
#include "base/text.h"

namespace sluice::survive {

namespace {

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Control::Control(comm::Transport& transport)
    : communicator_(transport.communicator("control", all_ranks(transport.world_size()))) {}

std::vector<std::vector<int64_t>> Control::gather_lists(const std::vector<int64_t>& words) {
  std::vector<int64_t> all(words.size() * static_cast<size_t>(world_size()));
  const auto waiting = activity_.waiting();
  communicator_->all_gather(words.data(), all.data(), std::ssize(words) * int64_t{sizeof(int64_t)})->wait();
  std::vector<std::vector<int64_t>> by_rank;
  const int64_t size = std::ssize(words);
  for (int64_t rank = 0; rank < world_size(); ++rank)
    by_rank.emplace_back(all.begin() + rank * size, all.begin() + (rank + 1) * size);
  return by_rank;
}

void Control::add_up(std::vector<double>& values) {
  const int64_t ranks = world_size(), each = (std::ssize(values) + ranks - 1) / ranks;
  std::vector<double> all(static_cast<size_t>(each * ranks), 0), own(static_cast<size_t>(each));
  std::ranges::copy(values, all.begin());
  const auto waiting = activity_.waiting();
  communicator_->reduce_scatter(all.data(), own.data(), each, comm::DType::kFloat64)->wait();
  communicator_->all_gather(own.data(), all.data(), each * int64_t{sizeof(double)})->wait();
  std::copy_n(all.begin(), values.size(), values.begin());
}

std::vector<std::string> Control::gather_texts(const std::string& own) {
  const auto waiting = activity_.waiting();
  return survive::gather_texts(*communicator_, own);
}

std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& own) {
  const int64_t size = std::ssize(own);
  std::vector<int64_t> sizes(static_cast<size_t>(ranks.size()));
  ranks.all_gather(&size, sizes.data(), sizeof size)->wait();
  const auto most = static_cast<size_t>(std::ranges::max(sizes));
  std::string padded = own;
  padded.resize(most);
  std::string all(most * sizes.size(), '\0');
  if (most > 0) ranks.all_gather(padded.data(), all.data(), static_cast<int64_t>(most))->wait();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    texts.push_back(all.substr(rank * most, static_cast<size_t>(sizes[rank])));
  return texts;
}

bool Control::any(bool own) {
  return std::ranges::any_of(gather<int64_t>(own ? 1 : 0), [](int64_t one) { return one != 0; });
}

std::string Control::broadcast(const std::string& text, int from) {
  const int64_t size = gather(std::ssize(text))[static_cast<size_t>(from)];
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

void Control::barrier() { gather(0); }

base::Error as_error(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const base::Error& error) {
    return error;
  } catch (const std::exception& error) {
    return base::RunError(base::describe_failure(error));
  }
}

int exit_status_of(std::exception_ptr failure) { return failure ? as_error(failure).exit_status() : 0; }

void Control::agree_on_failures(const std::string& what, std::exception_ptr own) {
  throw_if_any_failed(what, gather<int64_t>(exit_status_of(own)), own);
}

void Control::require_same(const std::string& what, uint64_t own,
                           const std::function<std::string(int rank)>& difference) {
  const std::vector<uint64_t> all = gather(own);
  together(what, [&] {
    const auto other = std::ranges::find_if(all, [&](uint64_t hash) { return hash != all[0]; });
    if (other != all.end()) throw base::InputError(difference(static_cast<int>(other - all.begin())));
  });
}

void Control::throw_if_any_failed(const std::string& what, std::span<const int64_t> statuses,
                                  std::exception_ptr own) {
  for (int rank = 0; rank < world_size(); ++rank) {
    const int status = static_cast<int>(statuses[static_cast<size_t>(rank)]);
    if (status == 0) continue;
    failure_agreed_ = true;
    if (rank == this->rank()) std::rethrow_exception(own);
    throw QuietError(base::text(what, " failed on rank ", rank), status);
  }
}

}  // namespace sluice::survive
