#include "survive/start_notices.h"

#include <chrono>

#include "base/log.h"
#include "base/steady_time.h"
#include "base/text.h"

namespace sluice::survive {

std::optional<std::string> PhaseLines::due(const std::string& phase, const std::string& how_far,
                                           int64_t now_ns) {
  if (phase != phase_) {
    phase_ = phase;
    begin_ns_ = now_ns;
    shown_ns_ = 0;
  }
  const int64_t since_ns = now_ns - begin_ns_;
  const bool first = shown_ns_ == 0;
  if (phase.empty() || (first ? since_ns < kShownAfterNs : now_ns - shown_ns_ < kAgainAfterNs))
    return std::nullopt;
  shown_ns_ = now_ns;
  if (first) return phase;
  return base::text("still ", phase, " after ", since_ns / 1'000'000'000, " s", how_far.empty() ? "" : ": ",
                    how_far);
}

StartNotices::StartNotices(const Activity& activity) : activity_(activity), thread_([this] { look(); }) {}

StartNotices::~StartNotices() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void StartNotices::look() {
  constexpr std::chrono::milliseconds kPause{100};
  PhaseLines lines;
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, kPause, [this] { return ended_; })) {
    const Doing doing = activity_.now();
    if (const auto line = lines.due(doing.what, doing.how_far, base::now_ns())) base::log_info(*line);
  }
}

}  // namespace sluice::survive
