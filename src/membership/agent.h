// Agreement on the next membership when a member is lost, a rank wants to join, or a worker died.
//
// The members of one membership decide the next one, once, by single-decree Paxos (Lamport, "The Part-Time
// Parliament"). A proposer asks all members for a promise under a ballot. With the promises of a quorum it
// proposes a membership of those members and of newcomers. If promises report values that were accepted
// before, it proposes the one with the highest ballot instead. A value that a quorum accepts is committed. A
// quorum is more than half of the members, or exactly half with the tie (World::take_tie), which only one
// proposer per membership gets. So two quorums share a member or a proposer: two memberships of one number
// never both commit, whatever is delayed, lost or cut off.
//
// A member ends its worker before it promises: no worker of the last membership trains beside the next one's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/message.h"

namespace sluice::membership {

enum class Leaving : uint8_t {
  kRunEnded,    // the other members' workers have ended, too
  kLeftBehind,  // the others continue without this member
  kNotLetIn,    // its request to join found no answer
  kNoQuorum,    // and no other member has a quorum
};

// Certainty about a member that cannot be reached at its address.
enum class Gone : uint8_t {
  kSeemsSo,  // perhaps only the network is broken
  kForGood,  // its process has ended
};

// The agent's effects on its surroundings. Only the agent's functions call them.
class World {
 public:
  virtual ~World() = default;
  // Sends a message, which may arrive late, twice, or never.
  virtual void send(const Member& to, const Message& message) = 0;
  // Ends the worker, if any. Returns the snapshots in this member's memory.
  virtual std::vector<HeldSnapshot> stop_worker() = 0;
  // REQUIRES: no worker runs.
  virtual void start_worker(const Membership& membership) = 0;
  // Asks the worker to end after its step with a sealed snapshot, because a rank wants to join.
  virtual void ask_for_boundary() = 0;
  // Whether this member gets the tie of that membership: it is the first of all to ask, or got it before.
  virtual bool take_tie(int64_t epoch) = 0;
  virtual void warn(const std::string& line) = 0;  // the user
  // This member cannot continue; `reason` is for people. No function is called afterwards.
  virtual void leave(Leaving why, const std::string& reason) = 0;
};

struct AgentOptions {
  int64_t patience_ns = 3'000'000'000;         // for answers of members that are not known to be gone
  int64_t proposal_interval_ns = 300'000'000;  // between proposals of different members
  int64_t give_up_ns = 60'000'000'000;         // after this time without an agreement
  int64_t join_ns = 500'000'000;               // between two requests to join
  int64_t fresh_ns = 3'000'000'000;            // a newcomer counts as alive for so long after a message
};

// The protocol of one member. The caller passes the time. Not thread-safe.
class Agent {
 public:
  // For a member of `membership`, whose worker already runs.
  Agent(const Member& self, const Membership& membership, World& world, const AgentOptions& options);
  // For a rank that wants to become a member: it asks `contacts`, of which one must be reachable.
  Agent(const Member& self, const std::vector<Member>& contacts, World& world, const AgentOptions& options,
        int64_t now_ns);

  void on_message(const Message& message, int64_t now_ns);
  // Call when the worker ended because a peer was lost, because it was asked to, or by a signal.
  void on_worker_end(int64_t now_ns);
  // Call when this worker ended or failed for good. Tells the other members, so that none reports a loss.
  void on_run_end(int exit_status);
  // Call when that member's address cannot be reached any more.
  void on_gone(MemberId member, Gone how, int64_t now_ns);
  void on_time(int64_t now_ns);
  // When on_time() should be called next; INT64_MAX: never.
  int64_t next_ns() const;

  const Member& self() const { return self_; }
  const Membership& membership() const { return membership_; }  // the newest one with this member
  // The members that this one depends on: the other members, or those that may let it join.
  const std::vector<Member>& others() const {
    return phase_ == Phase::kJoining ? contacts_ : membership_.members;
  }
  bool is_member() const { return phase_ == Phase::kWorking || phase_ == Phase::kDeciding; }
  bool has_left() const { return phase_ == Phase::kLeft; }
  // The exit status of a member whose run ended, if there was one.
  std::optional<int> run_end() const { return run_end_; }

 private:
  enum class Phase : uint8_t { kWorking, kDeciding, kJoining, kLeft };
  enum class Stage : uint8_t { kWaiting, kGathering, kProposing };

  void stop_working(int64_t now_ns);
  void decide(int64_t now_ns);
  void propose(int64_t now_ns);
  void conclude_gathering(int64_t now_ns);
  void try_again_later(int64_t now_ns);
  void wait_for_another(int64_t now_ns);
  Membership next_epoch(int64_t now_ns);
  bool is_quorum(size_t votes);
  void adopt(const Membership& membership);
  void leave(Leaving why, const std::string& reason);
  void give_up();
  void leave_if_alone();
  bool can_have_quorum() const;
  int64_t turn() const;
  bool all_answered() const;

  void heed_end(const Message& message);
  bool refuses(const Message& message, int64_t now_ns);
  void on_prepare(const Message& message, int64_t now_ns);
  void on_promise(const Message& message, int64_t now_ns);
  void on_accept(const Message& message, int64_t now_ns);
  void on_accepted(const Message& message);
  void on_refused(const Message& message, int64_t now_ns);
  void on_join(const Message& message, int64_t now_ns);
  void ask_to_join(int64_t now_ns);

  Message about_next(MessageType word) const;
  void send(const Member& to, const Message& message, int64_t now_ns);
  void answer(const Message& to, Message message, int64_t now_ns);

  Member self_;
  World& world_;
  AgentOptions options_;
  Phase phase_;
  Membership membership_;
  std::vector<Member> contacts_;  // a joining rank's
  std::set<MemberId> gone_;
  std::set<MemberId> dead_;         // the part of gone_ that is gone for good
  std::map<MemberId, Member> met_;  // members of this and earlier memberships, to be notified of the end
  std::optional<int> run_end_;
  std::map<MemberId, std::pair<Member, int64_t>> newcomers_;  // with the time of their last message

  // The acceptor's state, for the membership after membership_.
  Ballot promised_;
  Ballot accepted_;
  std::optional<Membership> value_;
  std::vector<HeldSnapshot> held_;

  // The proposer's state.
  Stage stage_ = Stage::kWaiting;
  Ballot ballot_;
  std::map<MemberId, Message> promises_;
  std::optional<Membership> proposal_;
  std::set<MemberId> accepts_;

  int64_t deadline_ns_ = INT64_MAX;  // for the stage, or the next request to join
  int64_t give_up_at_ns_ = INT64_MAX;
};

}  // namespace sluice::membership
