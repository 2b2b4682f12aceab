#include "train/step_watchdog.h"

#include <utility>

#include "base/text.h"

namespace sluice::train {

namespace {

std::string describe(const runtime::BusyStream& node) {
  std::string name = base::text("'", graph::name_of(node.kind), "'");
  if (node.stage >= 0) name += base::text(" of stage ", node.stage);
  if (node.micro_batch >= 0) name += base::text(", micro-batch ", node.micro_batch);
  if (node.round >= 0) name += base::text(", round ", node.round);
  return base::text(name, " in step ", node.step);
}

}  // namespace

StepWatchdog::StepWatchdog(const runtime::NodeWatch& nodes, WatchdogOptions options)
    : nodes_(nodes), options_(std::move(options)), thread_([this] { watch(); }) {}

StepWatchdog::~StepWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StepWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::nanoseconds(options_.look_ns), [&] { return ending_; })) {
    const std::string stalled = look();
    if (stalled.empty()) continue;
    lock.unlock();
    options_.on_stall(stalled);
    return;
  }
}

// What is stuck, or nothing.
std::string StepWatchdog::look() {
  const auto busy = nodes_.busy();
  for (size_t stream = 0; stream < busy.size(); ++stream) {
    const runtime::BusyStream& node = busy[stream];
    Seen& seen = seen_[stream];
    if (node.serial == 0 || node.serial != seen.serial) {
      seen = {.serial = node.serial};
      continue;
    }
    const int64_t age_ns = ++seen.looks * options_.look_ns;
    const int64_t patience_ns = node.alone ? options_.stall_ns / 2 : options_.stall_ns;
    if (age_ns < patience_ns + kPlannedTimes * node.planned_ns) continue;
    return base::text(node.alone ? "it is stuck in " : "it waits for other ranks in ", describe(node),
                      ", for ", base::human_duration(age_ns), " now where ",
                      base::human_duration(node.planned_ns), " were planned");
  }
  return "";
}

}  // namespace sluice::train
