// Members in virtual time over a network that delays, drops and cuts, each with a worker that makes steps and
// seals snapshots: what agents are tested in. It checks what must always hold, and says what did not.
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
    int lost_percent = 0;  // of all messages
  };
  explicit TestWorld(const Options& options);
  ~TestWorld();

  // Members are named in the order in which they came, from 0; their ids are one more.
  void run_until(int64_t time_ns);
  void kill(int member);         // supervisor, worker and memory
  void kill_worker(int member);  // its supervisor sees it at once
  void join();
  void cut_off(const std::vector<int>& members);  // reach each other, and nobody else reaches them
  void heal();
  void end_run();  // of the newest epoch, whose members are told and end

  int members() const { return static_cast<int>(nodes_.size()); }
  bool is_alive(int member) const;
  bool has_left(int member) const;
  std::optional<Leaving> leaving(int member) const;
  const std::string& reason(int member) const;
  const Membership& newest_membership() const { return begun_.rbegin()->second; }
  int64_t newest_whole_step() const { return whole_step_; }  // that all ranks of an epoch have sealed
  int64_t now_ns() const { return now_ns_; }
  // "", or the first thing that must not happen and did.
  const std::string& fault() const { return fault_; }

 private:
  struct Node;
  struct Event {
    int64_t time_ns = 0;
    int64_t serial = 0;  // of two at once the earlier one first
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
  std::map<int64_t, MemberId> ties_;          // by epoch: who has it
  std::map<int64_t, std::set<int>> sealing_;  // by epoch: ranks that have sealed the step under way
  int64_t whole_step_ = -1;  // the newest that all ranks of an epoch sealed, while it is whole
  int64_t whole_epoch_ = 0;
  std::string fault_;
};

struct RandomSchedule {
  std::string fault;
  int64_t memberships = 0;  // that began
};
// 4 to 64 ranks, ten faults, then peace: who is left in reach of a quorum must train in the end.
RandomSchedule run_random_schedule(uint64_t seed);

}  // namespace sluice::membership
