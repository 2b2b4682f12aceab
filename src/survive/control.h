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

// Ends this rank with another rank's exit status. The other rank reports the failure to the user.
class QuietError : public base::Error {
 public:
  using base::Error::Error;
};

// The failure as an error for the user.
base::Error as_error(std::exception_ptr failure);

// The exit status of `failure`; 0 if there is none.
int exit_status_of(std::exception_ptr failure);

// Collective: every rank's text, of any length, in rank order.
std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& own);

class Control {
 public:
  // Collective over all ranks.
  explicit Control(comm::Transport& transport);

  int rank() const { return communicator_->rank(); }
  int world_size() const { return communicator_->size(); }
  comm::Communicator& communicator() { return *communicator_; }
  // This rank's current activity. `together` and functions here that wait for others record themselves.
  Activity& activity() { return activity_; }

  // Every rank's value, in rank order.
  template <typename Value>
  std::vector<Value> gather(const Value& own);
  // Like gather() for lists. REQUIRES: lists of equal length on all ranks.
  std::vector<std::vector<int64_t>> gather_lists(const std::vector<int64_t>& words);
  // Like gather() for texts of any length.
  std::vector<std::string> gather_texts(const std::string& own);
  // Replaces each value by the sum over all ranks. REQUIRES: lists of equal length on all ranks.
  void add_up(std::vector<double>& values);
  // Whether `own` is true on some rank.
  bool any(bool own);
  // Returns the text of rank `from` on every rank.
  std::string broadcast(const std::string& text, int from = 0);
  // Returns once every rank has called it.
  void barrier();
  // Runs `action`, described as `what` ("saving the checkpoint"), on every rank. If it threw on any rank,
  // throws on every rank: the lowest rank that failed rethrows its own error, all others throw a QuietError.
  // So no rank waits for one that gave up.
  template <typename Action>
  void together(const std::string& what, Action action);
  // The second half of `together`, for callers that have gathered `statuses`: each rank's 0 or exit_status_of
  // its error. `own` is this rank's error. Returns if no rank failed.
  void throw_if_any_failed(const std::string& what, std::span<const int64_t> statuses,
                           std::exception_ptr own);
  // Collective like `together`: InputError with `difference` of the first rank whose hash is not rank 0's.
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
