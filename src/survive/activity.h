// The current activity of a rank's main thread, for observers on other threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sluice::survive {

enum class WorkKind {
  kOwn,     // only this rank can advance it
  kShared,  // it waits for other ranks, or may
  kNodes,   // a step in progress: runtime::NodeWatch knows the details
};

struct Doing {
  int64_t serial = 0;  // changes whenever an activity begins, ends or advances
  WorkKind work = WorkKind::kOwn;
  std::string what;          // "committing the checkpoint"
  std::string how_far = {};  // "1.25 GiB of 3.50 GiB (35 %)"; empty: not known
};

// Thread-safe, but only one thread may create scopes.
class Activity {
 public:
  // The thread is doing `what` during the scope's lifetime, and afterwards what the enclosing scope names.
  class Scope {
   public:
    Scope(Activity& activity, WorkKind work, std::string what) : activity_(activity) {
      const std::lock_guard lock(activity_.mutex_);
      ++activity_.serial_;
      activity_.how_far_.clear();
      activity_.stack_.emplace_back(work, std::move(what));
    }
    ~Scope() {
      const std::lock_guard lock(activity_.mutex_);
      ++activity_.serial_;
      activity_.how_far_.clear();
      activity_.stack_.pop_back();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Activity& activity_;
  };

  [[nodiscard]] Scope own(std::string what) { return {*this, WorkKind::kOwn, std::move(what)}; }
  [[nodiscard]] Scope shared(std::string what) { return {*this, WorkKind::kShared, std::move(what)}; }
  [[nodiscard]] Scope nodes(std::string what) { return {*this, WorkKind::kNodes, std::move(what)}; }
  // Waiting for other ranks within the current activity.
  [[nodiscard]] Scope waiting() { return {*this, WorkKind::kShared, now().what}; }

  // Progress of the current activity that nothing else shows, e.g. of one that only watches.
  void advance() {
    const std::lock_guard lock(mutex_);
    ++serial_;
  }

  // How far the current activity is, for people. It is forgotten when an activity begins or ends.
  void progress(std::string how_far) {
    const std::lock_guard lock(mutex_);
    ++serial_;
    how_far_ = std::move(how_far);
  }

  Doing now() const {
    const std::lock_guard lock(mutex_);
    if (stack_.empty()) return {.serial = serial_, .what = "between two parts of its work"};
    return {serial_, stack_.back().first, stack_.back().second, how_far_};
  }

 private:
  mutable std::mutex mutex_;
  int64_t serial_ = 1;
  std::string how_far_;
  std::vector<std::pair<WorkKind, std::string>> stack_;
};

}  // namespace sluice::survive
