#include "survive/watchdog.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"

namespace sluice::survive {

namespace {

// A process that computes for less than this part of the time is idle; its watching threads use a little.
constexpr int64_t kIdlePart = 100;

std::string describe(const runtime::BusyStream& node) {
  std::string name = base::text("'", graph::name_of(node.kind), "'");
  if (const graph::PassOnStage* at = graph::pass_on_stage(node.payload))
    name += base::text(" of stage ", at->stage, ", micro-batch ", at->micro_batch);
  if (const auto* link = std::get_if<graph::LinkRound>(&node.payload))
    name += base::text(", round ", link->round);
  return base::text(name, " in step ", node.step);
}

int64_t nanoseconds(const timeval& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1'000;
}

bool is_busy(const runtime::BusyStream& stream) { return stream.serial != 0; }

}  // namespace

WorkDone process_work_done() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
          int64_t{usage.ru_inblock} + usage.ru_oublock + usage.ru_majflt};
}

bool at_own_work(const Activity& activity, const runtime::NodeWatch& nodes) {
  const WorkKind work = activity.now().work;
  if (work != WorkKind::kNodes) return work == WorkKind::kOwn;
  const auto busy = nodes.busy();
  return std::ranges::none_of(busy, is_busy) ||
         std::ranges::any_of(busy, [](const auto& stream) { return is_busy(stream) && stream.alone; });
}

Watchdog::Watchdog(const Activity& activity, const runtime::NodeWatch& nodes, WatchdogOptions options)
    : activity_(activity),
      nodes_(nodes),
      options_(std::move(options)),
      effort_(options_.work_done()),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::nanoseconds(options_.look_ns), [&] { return ending_; })) {
    const std::string stalled = look();
    if (stalled.empty()) continue;
    lock.unlock();
    options_.on_stall(stalled);
    return;
  }
}

// A description of what is stuck; empty if nothing is.
std::string Watchdog::look() {
  const bool held = options_.others_at_own_work && options_.others_at_own_work();
  const WorkDone before = std::exchange(effort_, options_.work_done());
  const bool moved = effort_.transfers != before.transfers;
  const bool computes = effort_.computed_ns - before.computed_ns > options_.look_ns / kIdlePart;
  const int64_t counted_ns = computes ? options_.look_ns / kComputingTimes : options_.look_ns;
  const auto busy = nodes_.busy();
  for (size_t stream = 0; stream < busy.size(); ++stream) {
    std::string stalled = look_at(busy[stream], seen_nodes_[stream], held, counted_ns);
    if (!stalled.empty()) return stalled;
  }
  Doing doing = activity_.now();
  // While none of its nodes runs, only the rank itself can advance a step.
  if (doing.work == WorkKind::kNodes && std::ranges::any_of(busy, is_busy)) doing.serial = 0;
  if (moved) doing.serial = 0;
  return look_at(doing, held, counted_ns);
}

std::string Watchdog::look_at(const runtime::BusyStream& node, Seen& seen, bool held,
                              int64_t counted_ns) const {
  if (node.serial == 0 || node.serial != seen.serial) {
    seen = {.serial = node.serial};
    return "";
  }
  seen.age_ns += options_.look_ns;
  // A rank that computes is merely slow, e.g. on a shared machine or by a plan that is far off.
  if (node.alone || !held) seen.stalled_ns += node.alone ? counted_ns : options_.look_ns;
  const int64_t patience_ns = node.alone ? options_.stall_ns / 2 : options_.stall_ns;
  if (seen.stalled_ns < patience_ns + kPlannedTimes * node.planned_ns) return "";
  return base::text(node.alone ? "it is stuck in " : "it waits for other ranks in ", describe(node), ", for ",
                    base::human_duration(seen.age_ns), " now where ", base::human_duration(node.planned_ns),
                    " were planned");
}

// A serial of 0 means that this activity is judged elsewhere.
std::string Watchdog::look_at(const Doing& doing, bool held, int64_t counted_ns) {
  if (doing.serial == 0 || doing.serial != seen_.serial) {
    seen_ = {.serial = doing.serial};
    return "";
  }
  seen_.age_ns += options_.look_ns;
  const bool shared = doing.work == WorkKind::kShared;
  if (!(shared && held)) seen_.stalled_ns += counted_ns;
  if (seen_.stalled_ns < options_.stall_ns) return "";
  return base::text(shared ? "it waits for other ranks while " : "it is stuck while ", doing.what, ", for ",
                    base::human_duration(seen_.age_ns), " now");
}

}  // namespace sluice::survive
