// Proves the order of a device's work. Every access to the device's memory is compared with all earlier ones
// by vector clocks: two accesses of which one writes must be ordered by events, by a stream or by the host.
//
// The device's work runs at once, on the thread that issues it: a race shows as a fault although its numbers
// are right. Time is the device's own: each launch takes as long as any, and an event waits for what it is
// recorded behind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "accessed_memory.h"
#include "counts.h"
#include "host_copies.h"
#include "order.h"
#include "runtime/node_watch.h"

namespace sluice::stand_in {

// One device's. Thread-safe.
class Checker {
 public:
  // Forgets streams, memory and work of the run before, and its mutation.
  void begin_run();

  // Streams and events. Those streams that DeviceExecutor makes come first, after the default stream 0.
  int new_stream();
  struct Event {
    Clock clock;
    int stream = 0;
    int64_t ns = 0;
  };
  void record(Event& event, int stream);
  void block(const Event& event, int stream);
  void synchronize(const Event& event);
  void synchronize_stream(int stream);
  // Whether the host has waited for it.
  bool is_done(const Event& event) const;

  // A stream's time.
  int64_t ns(int stream) const;
  void reach(int stream, int64_t ns);
  void launches_take(int64_t ns);

  // Work on a stream. A launch may have several accesses. Not `counted`: it is a part of one that was.
  void launch(int stream, bool counted = true);
  void access(int stream, const void* begin, int64_t bytes, Mode mode, const std::string& by);
  // The host reads what the stream's work has made, and waits for it.
  void host_waits_for(int stream, const std::string& by);

  // Memory of the device (AccessedMemory).
  void made(void* begin, size_t bytes, int stream);
  void freed(void* begin);
  void tell_allocator(void* begin, int stream);
  void pinned_used(const void* begin, size_t bytes);
  void pinned_freed(const void* begin, size_t bytes);
  // Copies that the host does not wait for (HostCopies).
  void copy_from_host(int stream, const void* host, int64_t bytes);
  void copy_to_host(int stream, const void* device, void* host, int64_t bytes);
  void land(const void* begin, int64_t bytes);

  void say(const std::string& fault);
  void mutate(Mutation mutation);
  bool leaves_out(const Ordering& ordering) const;
  void count();
  runtime::NodeWatch& watch() { return watch_; }

  // What was found in a run. Faults: how often each kind was seen. Counts: where they were asked for.
  struct Findings {
    std::map<std::string, int64_t> faults;
    int64_t accesses = 0;
    std::map<std::string, Count> counts;
  };
  Findings end_run();

 private:
  Clock& clock(int stream);
  void host_joins(const Clock& clock);
  Access access_now(int stream, const std::string& by) {
    return {stream, clock(stream)[stream], &*texts_.insert(by).first};
  }
  std::string place() const;

  mutable std::recursive_mutex mutex_;
  std::array<Clock, kMostStreams> of_stream_{};
  std::array<int64_t, kMostStreams> ns_{};  // by stream, in the device's time
  int64_t launch_ns_ = 0;
  Clock host_;
  int streams_ = 1;
  AccessedMemory memory_{[this](const std::string& fault) { say(fault); }};
  HostCopies copies_{[this](const std::string& fault) { say(fault); }};
  std::set<std::string> texts_;
  std::map<std::string, int64_t> faults_;
  std::optional<Counts> counts_;
  Mutation mutation_;
  runtime::NodeWatch watch_;
};

// The checker of a device; they live as long as the process.
Checker& checker(int device);

}  // namespace sluice::stand_in
