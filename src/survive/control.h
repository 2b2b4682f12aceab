// Small messages between all ranks outside the step graph: agreement on plans, calibration, stopping.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "comm/transport.h"
#include "survive/activity.h"

namespace sluice::survive {

// Another rank tells the user what this rank failed of, too.
class QuietError : public base::Error {
 public:
  using base::Error::Error;
};

// What a user is told of a failure.
base::Error as_error(std::exception_ptr failure);

// 0 for no failure.
int exit_status_of(std::exception_ptr failure);

// Collective: every rank's text, however long, rank by rank.
std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& own);

class Control {
 public:
  // Collective over all ranks.
  explicit Control(comm::Transport& transport);

  int rank() const { return communicator_->rank(); }
  int world_size() const { return communicator_->size(); }
  comm::Communicator& communicator() { return *communicator_; }
  // What this rank is at; `together` and all that waits for others here say so themselves.
  Activity& activity() { return activity_; }

  // Every rank's value, rank by rank.
  template <typename Value>
  std::vector<Value> gather(const Value& own);
  // The same of lists. REQUIRES: as many words on every rank.
  std::vector<std::vector<int64_t>> gather_lists(const std::vector<int64_t>& words);
  // The same of texts, however long.
  std::vector<std::string> gather_texts(const std::string& own);
  // Each value becomes the sum of all ranks'. REQUIRES: as many on every rank.
  void add_up(std::vector<double>& values);
  // Whether some rank says so.
  bool any(bool own);
  // One rank's text on every rank.
  std::string broadcast(const std::string& text, int from = 0);
  // Returns when every rank has called it.
  void barrier();
  // Runs `action`, which is `what` ("saving the checkpoint"), on every rank, then throws on every rank if it
  // threw on any: its own error on the lowest rank that failed, a QuietError on all others. Keeps ranks from
  // waiting for one that gave up.
  template <typename Action>
  void together(const std::string& what, Action action);
  // The second half of `together`, for who has gathered `statuses` already: of every rank, 0 or the
  // exit_status_of its error; `own` is this rank's. Returns if no rank failed.
  void throw_if_any_failed(const std::string& what, std::span<const int64_t> statuses,
                           std::exception_ptr own);
  // Collective, as `together`: InputError of `difference` for the first rank whose hash is not rank 0's.
  void require_same(const std::string& what, uint64_t own,
                    const std::function<std::string(int rank)>& difference);
  // Whether `together` has thrown: then all ranks know of the failure.
  bool failure_agreed() const { return failure_agreed_; }

 private:
  void agree_on_failures(const std::string& what, std::exception_ptr own);

  Activity activity_;
  bool failure_agreed_ = false;
  std::unique_ptr<comm::Communicator> communicator_;
};

template <typename Value>
std::vector<Value> Control::gather(const Value& own) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(static_cast<size_t>(world_size()));
  const auto waiting = activity_.waiting();
  communicator_->all_gather(&own, all.data(), sizeof own)->wait();
  return all;
}

template <typename Action>
void Control::together(const std::string& what, Action action) {
  const auto doing = activity_.own(what);
  std::exception_ptr error;
  try {
    action();
  } catch (...) {
    error = std::current_exception();
  }
  agree_on_failures(what, error);
}

}  // namespace sluice::survive
