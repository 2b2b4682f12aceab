// Tests agents: members in virtual time over a network that delays, drops and partitions. Each has a worker
// that makes steps and seals snapshots. The world checks invariants and reports the first violation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "membership/agent.h"

namespace sluice::membership {

class TestWorld {
 public:
  struct Options {
    int ranks = 4;
    uint64_t seed = 1;
    int lost_percent = 0;  // percentage of messages that are lost
  };
  explicit TestWorld(const Options& options);
  ~TestWorld();

  // Members are numbered from 0 in the order of their arrival; their ids are larger by 1.
  void run_until(int64_t time_ns);
  void kill(int member);         // ends its supervisor, worker and memory
  void kill_worker(int member);  // its supervisor notices at once
  void join();
  void cut_off(const std::vector<int>& members);  // they reach each other and no other member
  void heal();
  void end_run();  // ends the newest membership, whose members are notified

  int members() const { return static_cast<int>(nodes_.size()); }
  bool is_alive(int member) const;
  bool has_left(int member) const;
  std::optional<Leaving> leaving(int member) const;
  const std::string& reason(int member) const;
  const Membership& newest_membership() const { return begun_.rbegin()->second; }
  int64_t newest_whole_step() const { return whole_step_; }  // sealed by all ranks of a membership
  int64_t now_ns() const { return now_ns_; }
  // The first invariant that was violated; "" if none was.
  const std::string& fault() const { return fault_; }

 private:
  struct Node;
  struct Event {
    int64_t time_ns = 0;
    int64_t serial = 0;  // orders events of the same time
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return std::pair(time_ns, serial) > std::pair(other.time_ns, other.serial);
    }
  };

  void at(int64_t time_ns, std::function<void()> action);
  int64_t random(int64_t below);
  Node* node_of(MemberId id);
  bool reaches(const Node& from, const Node& to) const;
  void wake(Node& node);
  void begin(Node& node, const Membership& membership);
  void start_if_all_are_there(const Membership& membership);
  void require_nothing_lost(const Membership& next);
  void seal(int64_t epoch, int64_t step, int rank);
  void tell_of_death(int member, bool of_supervisor);
  void notice_death(const Node& dead, Node& node, int64_t epoch, bool of_supervisor);
  void fail(const std::string& fault);

  const Options options_;
  base::Rng rng_;
  int64_t now_ns_ = 0;
  int64_t serial_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<int64_t, Membership> begun_;       // by number
  std::map<int64_t, MemberId> ties_;          // by membership: the member that has it
  std::map<int64_t, std::set<int>> sealing_;  // by membership: ranks that have sealed the current step
  int64_t whole_step_ = -1;  // the newest that all ranks of a membership sealed, until slices are lost
  int64_t whole_epoch_ = 0;
  std::string fault_;
};

struct RandomSchedule {
  std::string fault;
  int64_t memberships = 0;  // number of memberships that began
};
// 4 to 64 ranks, eight faults, then peace: all ranks that reach a quorum must train in the end.
RandomSchedule run_random_schedule(uint64_t seed);

}  // namespace sluice::membership
