// Log lines about the phases before a run's first step: reading, measuring, proposing and loading may take
// minutes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "survive/activity.h"

namespace sluice::survive {

// Decides which lines are due. Short phases have none.
class PhaseLines {
 public:
  static constexpr int64_t kShownAfterNs = 500'000'000;
  static constexpr int64_t kAgainAfterNs = 5'000'000'000;

  // The line for the phase that runs at that time: first after kShownAfterNs, then every kAgainAfterNs with
  // how far it is; otherwise nothing.
  std::optional<std::string> due(const std::string& phase, const std::string& how_far, int64_t now_ns);

 private:
  std::string phase_;
  int64_t begin_ns_ = 0;
  int64_t shown_ns_ = 0;  // 0: not yet
};

// While it lives, a thread logs the phases of `activity`, which outlives it.
class StartNotices {
 public:
  explicit StartNotices(const Activity& activity);
  ~StartNotices();
  StartNotices(const StartNotices&) = delete;
  StartNotices& operator=(const StartNotices&) = delete;

 private:
  void look();

  const Activity& activity_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace sluice::survive
