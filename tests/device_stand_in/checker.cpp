#include "checker.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace sluice::stand_in {
namespace {

constexpr int64_t kLaunchNs = 1000;  // unless it is said

}  // namespace

Checker& checker(int device) {
  static std::deque<Checker>* const checkers = [] {
    auto* all = new std::deque<Checker>;
    for (int i = 0; i < kMostDevices; ++i) all->emplace_back();
    return all;
  }();
  return checkers->at(static_cast<size_t>(device));
}

std::string stream_name(int stream) {
  if (stream == 0) return "the default stream";
  if (stream <= graph::kStreams)
    return base::text("stream '", graph::name_of(static_cast<graph::Stream>(stream - 1)), "'");
  return base::text("side stream ", stream - graph::kStreams);
}

// The host issues in order: a stream's next work is behind all that the host has waited for.
Clock& Checker::clock(int stream) {
  Clock& own = of_stream_[static_cast<size_t>(stream)];
  own.join(host_);
  return own;
}

void Checker::begin_run() {
  const std::lock_guard lock(mutex_);
  of_stream_ = {};
  ns_ = {};
  launch_ns_ = kLaunchNs;
  host_ = {};
  streams_ = 1;
  memory_.clear();
  copies_.clear();
  faults_.clear();
  counts_.reset();
  mutation_ = nullptr;
}

int Checker::new_stream() {
  const std::lock_guard lock(mutex_);
  SLUICE_ASSERT(streams_ < kMostStreams, "the stand-in has no more streams");
  return streams_++;
}

void Checker::record(Event& event, int stream) {
  const std::lock_guard lock(mutex_);
  event.stream = stream;
  event.ns = ns_[static_cast<size_t>(stream)];
  if (!leaves_out({Ordering::Kind::kRecord, stream})) event.clock = clock(stream);
}

void Checker::block(const Event& event, int stream) {
  const std::lock_guard lock(mutex_);
  if (leaves_out({Ordering::Kind::kBlock, stream, event.stream})) return;
  clock(stream).join(event.clock);
  reach(stream, event.ns);
}

int64_t Checker::ns(int stream) const {
  const std::lock_guard lock(mutex_);
  return ns_[static_cast<size_t>(stream)];
}

void Checker::reach(int stream, int64_t ns) {
  const std::lock_guard lock(mutex_);
  int64_t& own_ns = ns_[static_cast<size_t>(stream)];
  own_ns = std::max(own_ns, ns);
}

void Checker::launches_take(int64_t ns) {
  const std::lock_guard lock(mutex_);
  launch_ns_ = ns;
}

void Checker::synchronize(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (!leaves_out({Ordering::Kind::kSynchronizeEvent, event.stream})) host_joins(event.clock);
}

void Checker::synchronize_stream(int stream) {
  const std::lock_guard lock(mutex_);
  if (counts_) counts_->add_wait(watch_, "stream");
  if (!leaves_out({Ordering::Kind::kSynchronizeStream, stream})) host_joins(clock(stream));
}

bool Checker::is_done(const Event& event) const {
  const std::lock_guard lock(mutex_);
  return host_.has(event.clock);
}

void Checker::host_waits_for(int stream, const std::string& by) {
  const std::lock_guard lock(mutex_);
  if (counts_) counts_->add_wait(watch_, by);
  host_joins(clock(stream));
}

void Checker::host_joins(const Clock& clock) {
  host_.join(clock);
  copies_.host_is_at(host_);
}

void Checker::launch(int stream, bool counted) {
  const std::lock_guard lock(mutex_);
  ++clock(stream)[stream];
  ns_[static_cast<size_t>(stream)] += launch_ns_;
  if (counts_ && counted) counts_->add_launch(watch_);
}

void Checker::access(int stream, const void* begin, int64_t bytes, Mode mode, const std::string& by) {
  if (bytes <= 0 || begin == nullptr) return;
  const std::lock_guard lock(mutex_);
  const Access now = access_now(stream, by);
  memory_.access(now, clock(stream), begin, bytes, mode);
}

void Checker::made(void* begin, size_t bytes, int stream) {
  const std::lock_guard lock(mutex_);
  memory_.made(begin, bytes, stream);
}

void Checker::freed(void* begin) {
  const std::lock_guard lock(mutex_);
  memory_.freed(begin, [this](int stream) -> const Clock& { return clock(stream); });
}

void Checker::tell_allocator(void* begin, int stream) {
  const std::lock_guard lock(mutex_);
  if (!leaves_out({Ordering::Kind::kTellAllocator, stream, memory_.made_on(begin)}))
    memory_.tell_allocator(begin, stream);
}

void Checker::pinned_used(const void* begin, size_t bytes) {
  const std::lock_guard lock(mutex_);
  memory_.pinned(begin, bytes);
}

void Checker::pinned_freed(const void* begin, size_t bytes) {
  const std::lock_guard lock(mutex_);
  copies_.freed(begin, static_cast<int64_t>(bytes));
  memory_.pinned_freed(begin);
}

void Checker::copy_from_host(int stream, const void* host, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  copies_.from_host(access_now(stream, "a copy"), host, bytes);
}

void Checker::copy_to_host(int stream, const void* device, void* host, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  copies_.to_host(access_now(stream, "a copy"), device, host, bytes);
}

void Checker::land(const void* begin, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  copies_.land(begin, bytes);
}

std::string Checker::place() const {
  for (const runtime::BusyStream& busy : watch_.issued()) {
    if (busy.serial != 0) return base::text(" in ", graph::name_of(busy.kind));
  }
  return "";
}

void Checker::say(const std::string& fault) {
  const std::lock_guard lock(mutex_);
  ++faults_[fault + place()];
}

void Checker::mutate(Mutation mutation) {
  const std::lock_guard lock(mutex_);
  mutation_ = std::move(mutation);
}

bool Checker::leaves_out(const Ordering& ordering) const {
  const std::lock_guard lock(mutex_);
  return mutation_ && mutation_(ordering);
}

void Checker::count() {
  const std::lock_guard lock(mutex_);
  counts_.emplace();
}

Checker::Findings Checker::end_run() {
  const std::lock_guard lock(mutex_);
  Findings found{.faults = std::exchange(faults_, {}), .accesses = memory_.accesses(), .counts = {}};
  if (counts_) found.counts = counts_->by_kind();
  return found;
}

}  // namespace sluice::stand_in
