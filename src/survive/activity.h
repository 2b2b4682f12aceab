// What a rank's main thread is at, for who looks on from another thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sluice::survive {

enum class WorkKind {
  kOwn,     // nothing but this rank can move it on
  kShared,  // it waits for other ranks, or may
  kNodes,   // a step under way: runtime::NodeWatch knows more
};

struct Doing {
  int64_t serial = 0;  // another one whenever something began, ended or came on
  WorkKind work = WorkKind::kOwn;
  std::string what;  // "committing the checkpoint"
};

// Thread-safe; the scopes are one thread's.
class Activity {
 public:
  // From its making to its end the thread is at `what`, then again at what was around it.
  class Scope {
   public:
    Scope(Activity& activity, WorkKind work, std::string what) : activity_(activity) {
      const std::lock_guard lock(activity_.mutex_);
      ++activity_.serial_;
      activity_.stack_.emplace_back(work, std::move(what));
    }
    ~Scope() {
      const std::lock_guard lock(activity_.mutex_);
      ++activity_.serial_;
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
  // For other ranks, in whatever is under way.
  [[nodiscard]] Scope waiting() { return {*this, WorkKind::kShared, now().what}; }

  // What is under way came on, though nothing shows of it: it only watches, say.
  void advance() {
    const std::lock_guard lock(mutex_);
    ++serial_;
  }

  Doing now() const {
    const std::lock_guard lock(mutex_);
    if (stack_.empty()) return {.serial = serial_, .what = "between two parts of its work"};
    return {serial_, stack_.back().first, stack_.back().second};
  }

 private:
  mutable std::mutex mutex_;
  int64_t serial_ = 1;
  std::vector<std::pair<WorkKind, std::string>> stack_;
};

}  // namespace sluice::survive
