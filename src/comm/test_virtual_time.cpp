#include "comm/test_virtual_time.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"

namespace sluice::comm {
namespace {

enum class Reason : uint8_t { kStream, kCommunicator, kDependency };

// `after` cannot start on `rank` before `before` has ended.
struct Wait {
  int before = 0;
  int after = 0;
  int rank = 0;
  Reason reason = Reason::kStream;
};

// The last event seen under each id; ids are small integers.
class LastSeen {
 public:
  // Sets the last event under `id` and returns the previous one, or -1.
  int exchange(int id, int event) {
    const auto index = static_cast<size_t>(id);
    if (index >= last_.size()) last_.resize(index + 1, -1);
    return std::exchange(last_[index], event);
  }
  void clear() { std::fill(last_.begin(), last_.end(), -1); }

 private:
  std::vector<int> last_;
};

// Checks once for the whole program that only members issue an event, and each of them once.
class Membership {
 public:
  explicit Membership(const VirtualProgram& program) : program_(program), issued_(program.events.size(), 0) {}

  bool holds(int event, int rank) const {
    const std::vector<int>& members = program_.events[static_cast<size_t>(event)].members;
    return std::find(members.begin(), members.end(), rank) != members.end();
  }

  void issue(int event, int rank) {
    SLUICE_ASSERT(event >= 0 && static_cast<size_t>(event) < issued_.size(),
                  base::text("rank ", rank, " issues event ", event, ", which doesn't exist"));
    SLUICE_ASSERT(holds(event, rank), base::text("rank ", rank, " issues event ", event, " of other ranks"));
    ++issued_[static_cast<size_t>(event)];
  }

  void check_complete() const {
    for (size_t event = 0; event < issued_.size(); ++event) {
      SLUICE_ASSERT(issued_[event] == program_.events[event].members.size(),
                    base::text("event ", event, " has ", program_.events[event].members.size(),
                               " members but is issued ", issued_[event], " times"));
    }
  }

 private:
  const VirtualProgram& program_;
  std::vector<size_t> issued_;
};

std::vector<Wait> waits_of(const VirtualProgram& program) {
  std::vector<Wait> waits;
  Membership membership(program);
  LastSeen on_stream;
  LastSeen on_communicator;
  for (int rank = 0; rank < static_cast<int>(program.ranks.size()); ++rank) {
    on_stream.clear();
    on_communicator.clear();
    for (const VirtualOperation& operation : program.ranks[static_cast<size_t>(rank)]) {
      membership.issue(operation.event, rank);
      const auto wait_for = [&](int before, Reason reason) {
        if (before >= 0) waits.push_back({before, operation.event, rank, reason});
      };
      wait_for(on_stream.exchange(operation.stream, operation.event), Reason::kStream);
      const int communicator = program.events[static_cast<size_t>(operation.event)].communicator;
      if (communicator != kNoCommunicator) {
        wait_for(on_communicator.exchange(communicator, operation.event), Reason::kCommunicator);
      }
      for (const int dependency : operation.dependencies) {
        SLUICE_ASSERT(membership.holds(dependency, rank),
                      base::text("event ", operation.event, " depends on rank ", rank, " on event ",
                                 dependency, ", of which that rank is no member"));
        wait_for(dependency, Reason::kDependency);
      }
    }
  }
  membership.check_complete();
  return waits;
}

// The events that wait for each event: after[first[e] … first[e + 1]).
struct Successors {
  std::vector<int> first;
  std::vector<int> after;
};

Successors successors_of(const std::vector<Wait>& waits, size_t events) {
  Successors result{std::vector<int>(events + 1, 0), std::vector<int>(waits.size())};
  for (const Wait& wait : waits) ++result.first[static_cast<size_t>(wait.before) + 1];
  for (size_t e = 0; e < events; ++e) result.first[e + 1] += result.first[e];
  std::vector<int> next(result.first.begin(), result.first.end() - 1);
  for (const Wait& wait : waits) {
    result.after[static_cast<size_t>(next[static_cast<size_t>(wait.before)]++)] = wait.after;
  }
  return result;
}

std::string describe(const VirtualProgram& program, int event) {
  const std::string& name = program.events[static_cast<size_t>(event)].name;
  return name.empty() ? base::text("event ", event) : base::text("event ", event, " '", name, "'");
}

int stream_of(const VirtualProgram& program, int rank, int event) {
  for (const VirtualOperation& operation : program.ranks[static_cast<size_t>(rank)]) {
    if (operation.event == event) return operation.stream;
  }
  return -1;
}

std::string describe(const VirtualProgram& program, const Wait& wait) {
  std::string reason;
  switch (wait.reason) {
    case Reason::kStream: reason = "ahead of it on that stream"; break;
    case Reason::kCommunicator:
      reason = base::text("ahead of it on communicator ",
                          program.events[static_cast<size_t>(wait.after)].communicator);
      break;
    case Reason::kDependency: reason = "its dependency"; break;
  }
  return base::text("rank ", wait.rank, " stream ", stream_of(program, wait.rank, wait.after), ": ",
                    describe(program, wait.after), " waits for ", describe(program, wait.before), " (",
                    reason, ")");
}

// Every event that never started waits for another such event, so following these waits leads to a cycle.
std::string cycle_among(const VirtualProgram& program, const std::vector<Wait>& waits,
                        const std::vector<int64_t>& end_ns) {
  std::vector<const Wait*> blocker(end_ns.size(), nullptr);
  int event = -1;
  for (const Wait& wait : waits) {
    if (end_ns[static_cast<size_t>(wait.before)] >= 0) continue;
    blocker[static_cast<size_t>(wait.after)] = &wait;
    event = wait.after;
  }
  for (size_t i = 0; i < end_ns.size(); ++i) event = blocker[static_cast<size_t>(event)]->before;
  std::vector<std::string> lines;
  const int first = event;
  do {
    const Wait& wait = *blocker[static_cast<size_t>(event)];
    lines.push_back(describe(program, wait));
    event = wait.before;
  } while (event != first);
  return base::join(lines, "; ");
}

}  // namespace

VirtualResult run_virtually(const VirtualProgram& program, const VirtualOptions& options) {
  const size_t events = program.events.size();
  const std::vector<Wait> waits = waits_of(program);
  const Successors successors = successors_of(waits, events);
  std::vector<int> missing(events, 0);
  for (const Wait& wait : waits) ++missing[static_cast<size_t>(wait.after)];

  VirtualResult result{std::vector<int64_t>(events, -1), std::vector<int64_t>(events, -1), 0, ""};
  std::vector<int64_t> earliest_ns(events, 0);
  std::vector<int> ready;
  for (size_t e = 0; e < events; ++e) {
    if (missing[e] == 0) ready.push_back(static_cast<int>(e));
  }
  for (size_t done = 0; done < ready.size(); ++done) {
    const auto e = static_cast<size_t>(ready[done]);
    int64_t delay_ns = 0;
    if (options.max_delay_ns > 0) {
      delay_ns = base::Rng(options.seed, e).between(0, options.max_delay_ns);
    }
    result.start_ns[e] = earliest_ns[e];
    result.end_ns[e] = earliest_ns[e] + program.events[e].duration_ns + delay_ns;
    result.makespan_ns = std::max(result.makespan_ns, result.end_ns[e]);
    for (int i = successors.first[e]; i < successors.first[e + 1]; ++i) {
      const auto after = static_cast<size_t>(successors.after[static_cast<size_t>(i)]);
      earliest_ns[after] = std::max(earliest_ns[after], result.end_ns[e]);
      if (--missing[after] == 0) ready.push_back(static_cast<int>(after));
    }
  }
  if (ready.size() < events) result.deadlock = cycle_among(program, waits, result.end_ns);
  return result;
}

}  // namespace sluice::comm
