// How members agree on the next epoch when one of them is lost, wants to join, or its worker died.
//
// Each epoch is decided once, by the members of the one before it, as single-decree Paxos does (Lamport, "The
// Part-Time Parliament"): who wants a next epoch asks all members for a promise under a ballot; with the
// promises of a quorum it proposes an epoch of those who promised and of newcomers, or the one that a promise
// says was accepted before under the highest ballot; what a quorum accepts is committed. A quorum is more
// than half of the members. With exactly half of them a proposer also needs the tie (World::take_tie), which
// is given away once an epoch. So two quorums have a member in common, or the tie is the same proposer's: two
// epochs of one number never both commit, whatever is delayed, lost or cut off.
//
// Before a member promises, its worker is ended: nobody of the last epoch trains on beside the next.
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
  kRunEnded,    // so did the others' workers
  kLeftBehind,  // the others go on without this member
  kNotLetIn,    // who wanted to join
  kNoQuorum,    // and nobody else has one
};

// Of a member whose address nobody listens at any more.
enum class Gone : uint8_t {
  kSeemsSo,  // the way to it may be broken
  kForGood,  // its process has ended
};

// What an agent does to the world around it. Called from within the agent's functions only.
class World {
 public:
  virtual ~World() = default;
  // May come late, twice, or never.
  virtual void send(const Member& to, const Message& message) = 0;
  // Ends the worker if there is one; what this member's memory then holds.
  virtual std::vector<HeldSnapshot> stop_worker() = 0;
  // REQUIRES: none runs.
  virtual void start_worker(const Membership& membership) = 0;
  // The worker is to end behind its step, with a snapshot sealed: somebody wants to join.
  virtual void ask_for_boundary() = 0;
  // Whether this member is the first of all to ask for the tie of that epoch, or the one that had it already.
  virtual bool take_tie(int64_t epoch) = 0;
  virtual void warn(const std::string& line) = 0;  // the user
  // This member cannot go on; `reason` is for people. Nothing is called afterwards.
  virtual void leave(Leaving why, const std::string& reason) = 0;
};

struct AgentOptions {
  int64_t patience_ns = 3'000'000'000;         // for answers of those who are not known to be gone
  int64_t proposal_interval_ns = 300'000'000;  // between proposals of different members
  int64_t give_up_ns = 60'000'000'000;         // without an agreement
  int64_t join_ns = 500'000'000;               // between two requests to join
  int64_t fresh_ns = 3'000'000'000;            // a newcomer heard of so lately is alive
};

// One member's part. Time is whatever the caller says it is. Not thread-safe.
class Agent {
 public:
  // A member of `epoch`, whose worker runs already.
  Agent(const Member& self, const Membership& membership, World& world, const AgentOptions& options);
  // Wants to become one; `contacts` need only be reachable.
  Agent(const Member& self, const std::vector<Member>& contacts, World& world, const AgentOptions& options,
        int64_t now_ns);

  void on_message(const Message& message, int64_t now_ns);
  // The worker ended because a peer was lost, because it was asked to, or by a signal.
  void on_worker_end(int64_t now_ns);
  // The worker ended for good: the run is over, or failed. The others are told, so that they don't miss it.
  void on_run_end(int exit_status);
  // Nobody listens at that member's address any more.
  void on_gone(MemberId member, Gone how, int64_t now_ns);
  void on_time(int64_t now_ns);
  // When on_time has something to do; INT64_MAX: never.
  int64_t next_ns() const;

  const Member& self() const { return self_; }
  const Membership& membership() const { return membership_; }  // the newest that this member is of
  // Whom this one needs to hear from: the epoch's members, or who might let it join.
  const std::vector<Member>& others() const {
    return phase_ == Phase::kJoining ? contacts_ : membership_.members;
  }
  bool is_member() const { return phase_ == Phase::kWorking || phase_ == Phase::kDeciding; }
  bool has_left() const { return phase_ == Phase::kLeft; }
  // How the run of some member ended, if one did.
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
  std::vector<Member> contacts_;  // of who joins
  std::set<MemberId> gone_;
  std::set<MemberId> dead_;         // of these, for good
  std::map<MemberId, Member> met_;  // members of this and earlier epochs, who are told of the run's end
  std::optional<int> run_end_;
  std::map<MemberId, std::pair<Member, int64_t>> newcomers_;  // and when they were heard of last

  // As one who is asked, about the epoch after epoch_.
  Ballot promised_;
  Ballot accepted_;
  std::optional<Membership> value_;
  std::vector<HeldSnapshot> held_;

  // As one who asks.
  Stage stage_ = Stage::kWaiting;
  Ballot ballot_;
  std::map<MemberId, Message> promises_;
  std::optional<Membership> proposal_;
  std::set<MemberId> accepts_;

  int64_t deadline_ns_ = INT64_MAX;  // of the stage, or of the next request to join
  int64_t give_up_at_ns_ = INT64_MAX;
};

}  // namespace sluice::membership
