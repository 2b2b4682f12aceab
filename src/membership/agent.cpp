#include "membership/agent.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sluice::membership {

using base::text;

Agent::Agent(const Member& self, const Membership& membership, World& world, const AgentOptions& options)
    : self_(self), world_(world), options_(options), phase_(Phase::kWorking), membership_(membership) {
  for (const Member& member : membership.members) met_[member.id] = member;
}

Agent::Agent(const Member& self, const std::vector<Member>& contacts, World& world,
             const AgentOptions& options, int64_t now_ns)
    : self_(self), world_(world), options_(options), phase_(Phase::kJoining), contacts_(contacts) {
  membership_.number = -1;
  deadline_ns_ = now_ns;
  give_up_at_ns_ = now_ns + options.give_up_ns;
}

int64_t Agent::next_ns() const {
  if (phase_ == Phase::kWorking || phase_ == Phase::kLeft) return INT64_MAX;
  return std::min(deadline_ns_, give_up_at_ns_);
}

void Agent::on_time(int64_t now_ns) {
  if (phase_ == Phase::kWorking || phase_ == Phase::kLeft || now_ns < next_ns()) return;
  if (now_ns >= give_up_at_ns_) return give_up();
  if (phase_ == Phase::kJoining) return ask_to_join(now_ns);
  switch (stage_) {
    case Stage::kWaiting: return propose(now_ns);
    case Stage::kGathering: return conclude_gathering(now_ns);
    case Stage::kProposing: return try_again_later(now_ns);
  }
}

void Agent::give_up() {
  const std::string patience = base::human_duration(options_.give_up_ns);
  if (phase_ == Phase::kJoining)
    return leave(Leaving::kNotLetIn, text("no rank of the run lets this one join within ", patience));
  leave(Leaving::kNoQuorum, text("membership ", membership_.number + 1,
                                 " cannot begin: fewer than half of the ", membership_.ranks(),
                                 " ranks of membership ", membership_.number, " answered within ", patience));
}

void Agent::on_worker_end(int64_t now_ns) {
  if (phase_ == Phase::kWorking && !run_end_) decide(now_ns);
}

void Agent::on_run_end(int exit_status) {
  run_end_ = exit_status;
  Message ended = about_next(MessageType::kEnded);
  ended.exit_status = exit_status;
  // Also informs members that missed recent memberships whether they belong to the newest one.
  ended.value = membership_;
  for (const auto& [id, member] : met_) {
    if (id != self_.id && !dead_.contains(id)) world_.send(member, ended);
  }
}

// Whether enough members may be alive to agree on a next membership.
bool Agent::can_have_quorum() const {
  const auto is_dead = [&](const Member& member) { return dead_.contains(member.id); };
  return 2 * std::ranges::count_if(membership_.members, is_dead) <= membership_.ranks();
}

void Agent::on_gone(MemberId member, Gone how, int64_t now_ns) {
  gone_.insert(member);
  if (how == Gone::kForGood) dead_.insert(member);
  newcomers_.erase(member);
  if (phase_ == Phase::kJoining) return leave_if_alone();
  if (!is_member() || membership_.rank_of(member) < 0 || run_end_) return;
  if (!can_have_quorum()) {
    world_.stop_worker();
    return leave(Leaving::kNoQuorum,
                 text("membership ", membership_.number + 1, " cannot begin: more than half of the ",
                      membership_.ranks(), " ranks of membership ", membership_.number, " are dead"));
  }
  if (phase_ == Phase::kWorking) return decide(now_ns);
  if (stage_ == Stage::kGathering && all_answered()) return conclude_gathering(now_ns);
  // Perhaps this member waited for the one that is gone.
  if (stage_ == Stage::kWaiting)
    deadline_ns_ = std::min(deadline_ns_, now_ns + turn() * options_.proposal_interval_ns);
}

// A rank need not wait to join a run that is over.
void Agent::leave_if_alone() {
  const auto is_gone = [&](const Member& contact) {
    return contact.id == self_.id || gone_.contains(contact.id);
  };
  if (std::ranges::all_of(contacts_, is_gone)) leave(Leaving::kNotLetIn, "nobody is left of the run to join");
}

// The number of members before this one that are not known to be gone.
int64_t Agent::turn() const {
  int64_t turn = 0;
  for (const Member& member : membership_.members) {
    if (member.id == self_.id) break;
    if (!gone_.contains(member.id)) ++turn;
  }
  return turn;
}

// Afterwards no worker of the last membership runs here. Idempotent.
void Agent::stop_working(int64_t now_ns) {
  if (phase_ != Phase::kWorking) return;
  held_ = world_.stop_worker();
  phase_ = Phase::kDeciding;
  stage_ = Stage::kWaiting;
  give_up_at_ns_ = now_ns + options_.give_up_ns;
}

void Agent::decide(int64_t now_ns) {
  stop_working(now_ns);
  deadline_ns_ = now_ns + turn() * options_.proposal_interval_ns;
  if (deadline_ns_ <= now_ns) propose(now_ns);
}

Message Agent::about_next(MessageType word) const {
  Message message;
  message.type = word;
  message.from = self_;
  message.membership = membership_.number + 1;
  message.ballot = ballot_;
  return message;
}

void Agent::send(const Member& to, const Message& message, int64_t now_ns) {
  if (to.id == self_.id) return on_message(message, now_ns);
  world_.send(to, message);
}

void Agent::answer(const Message& to, Message message, int64_t now_ns) {
  message.ballot = to.ballot;
  send(to.from, message, now_ns);
}

void Agent::propose(int64_t now_ns) {
  ballot_ = {std::max(ballot_.round, promised_.round) + 1, self_.id};
  stage_ = Stage::kGathering;
  deadline_ns_ = now_ns + options_.patience_ns;
  promises_.clear();
  accepts_.clear();
  proposal_.reset();
  const Message prepare = about_next(MessageType::kPrepare);
  for (const Member& member : membership_.members) {
    if (member.id != self_.id) world_.send(member, prepare);
  }
  on_prepare(prepare, now_ns);  // last: its own promise may be the last that is missing
}

bool Agent::all_answered() const {
  return std::ranges::all_of(membership_.members, [&](const Member& member) {
    return promises_.contains(member.id) || gone_.contains(member.id);
  });
}

bool Agent::is_quorum(size_t votes) {
  if (2 * votes != membership_.members.size()) return 2 * votes > membership_.members.size();
  return world_.take_tie(membership_.number + 1);
}

void Agent::try_again_later(int64_t now_ns) {
  stage_ = Stage::kWaiting;
  deadline_ns_ = now_ns + (turn() + 1) * options_.proposal_interval_ns;
}

void Agent::conclude_gathering(int64_t now_ns) {
  if (!is_quorum(promises_.size())) return try_again_later(now_ns);
  Ballot highest;
  for (const auto& [id, promise] : promises_) {
    if (!promise.value || promise.accepted <= highest) continue;
    highest = promise.accepted;
    proposal_ = promise.value;
  }
  if (!proposal_) proposal_ = next_epoch(now_ns);
  stage_ = Stage::kProposing;
  deadline_ns_ = now_ns + options_.patience_ns;
  Message accept = about_next(MessageType::kAccept);
  accept.value = proposal_;
  for (const auto& [id, promise] : promises_) {
    if (id != self_.id) world_.send(promise.from, accept);
  }
  on_accept(accept, now_ns);
}

// The next membership: the members that promised, in the order of their ranks, then ranks that want to join.
Membership Agent::next_epoch(int64_t now_ns) {
  Membership next;
  next.number = membership_.number + 1;
  std::vector<std::vector<HeldSnapshot>> held;
  for (const Member& member : membership_.members) {
    const auto promise = promises_.find(member.id);
    if (promise == promises_.end()) continue;
    next.members.push_back(promise->second.from);
    held.push_back(promise->second.snapshots);
  }
  for (const auto& [id, newcomer] : newcomers_) {
    if (now_ns - newcomer.second <= options_.fresh_ns) next.members.push_back(newcomer.first);
  }
  next.origin = newest_origin(held, membership_.number);
  for (const std::string& line : differing_copies(held)) world_.warn(line);
  return next;
}

void Agent::on_message(const Message& message, int64_t now_ns) {
  if (phase_ == Phase::kLeft) return;
  if (message.from.id != self_.id) gone_.erase(message.from.id);
  if (message.type == MessageType::kEnded && is_member()) return heed_end(message);
  if (message.type == MessageType::kCommit) return adopt(*message.value);
  if (phase_ == Phase::kJoining) return;
  if (message.type == MessageType::kJoin) return on_join(message, now_ns);
  // A member of an older membership gets the newer one from a member that knows it.
  const int64_t others = message.type == MessageType::kBehind ? message.membership : message.membership - 1;
  if (others < membership_.number) {
    Message commit = about_next(MessageType::kCommit);
    commit.value = membership_;
    return answer(message, commit, now_ns);
  }
  if (others > membership_.number) {
    Message behind = about_next(MessageType::kBehind);
    behind.membership = membership_.number;
    return answer(message, behind, now_ns);
  }
  switch (message.type) {
    case MessageType::kPrepare: return on_prepare(message, now_ns);
    case MessageType::kPromise: return on_promise(message, now_ns);
    case MessageType::kAccept: return on_accept(message, now_ns);
    case MessageType::kAccepted: return on_accepted(message);
    case MessageType::kRefused: return on_refused(message, now_ns);
    default: return;
  }
}

// A newer membership without this member belongs to another run, whose end does not concern this member.
void Agent::heed_end(const Message& message) {
  const bool is_newer = message.value && message.value->number > membership_.number;
  if (is_newer && message.value->rank_of(self_.id) < 0) return adopt(*message.value);
  if (!is_newer && membership_.rank_of(message.from.id) < 0) return;
  run_end_ = run_end_.value_or(message.exit_status);
  if (phase_ == Phase::kDeciding) leave(Leaving::kRunEnded, "the run has ended");
}

// Lets another member propose first; this one proposes after a timeout.
void Agent::wait_for_another(int64_t now_ns) {
  stage_ = Stage::kWaiting;
  deadline_ns_ = now_ns + 2 * options_.patience_ns + turn() * options_.proposal_interval_ns;
}

// Refuses a message if a higher ballot was promised, and notifies its sender.
bool Agent::refuses(const Message& message, int64_t now_ns) {
  if (message.ballot >= promised_) return false;
  Message refused = about_next(MessageType::kRefused);
  refused.ballot = promised_;
  send(message.from, refused, now_ns);
  return true;
}

void Agent::on_prepare(const Message& message, int64_t now_ns) {
  if (refuses(message, now_ns)) return;
  stop_working(now_ns);
  promised_ = std::max(promised_, message.ballot);
  if (message.from.id != self_.id) wait_for_another(now_ns);
  Message promise = about_next(MessageType::kPromise);
  promise.accepted = accepted_;
  promise.value = value_;
  promise.snapshots = held_;
  answer(message, promise, now_ns);
}

void Agent::on_promise(const Message& message, int64_t now_ns) {
  if (stage_ != Stage::kGathering || message.ballot != ballot_) return;
  promises_[message.from.id] = message;
  if (all_answered()) conclude_gathering(now_ns);
}

void Agent::on_accept(const Message& message, int64_t now_ns) {
  if (refuses(message, now_ns)) return;
  stop_working(now_ns);
  if (message.from.id != self_.id) wait_for_another(now_ns);
  promised_ = message.ballot;
  accepted_ = message.ballot;
  value_ = message.value;
  answer(message, about_next(MessageType::kAccepted), now_ns);
}

void Agent::on_accepted(const Message& message) {
  if (stage_ != Stage::kProposing || message.ballot != ballot_) return;
  accepts_.insert(message.from.id);
  if (!is_quorum(accepts_.size())) return;
  const Membership decided = *proposal_;
  Message commit = about_next(MessageType::kCommit);
  commit.value = decided;
  std::vector<Member> audience = decided.members;
  std::ranges::copy_if(membership_.members, std::back_inserter(audience),
                       [&](const Member& member) { return decided.rank_of(member.id) < 0; });
  for (const Member& member : audience) {
    if (member.id != self_.id) world_.send(member, commit);
  }
  adopt(decided);
}

void Agent::on_refused(const Message& message, int64_t now_ns) {
  promised_ = std::max(promised_, message.ballot);
  if (stage_ != Stage::kWaiting) try_again_later(now_ns);
}

void Agent::on_join(const Message& message, int64_t now_ns) {
  Message commit = about_next(MessageType::kCommit);  // the current state, perhaps already with the newcomer
  commit.value = membership_;
  answer(message, commit, now_ns);
  if (membership_.rank_of(message.from.id) >= 0) return;
  newcomers_[message.from.id] = {message.from, now_ns};
  if (phase_ == Phase::kWorking && membership_.rank_of(self_.id) == 0) world_.ask_for_boundary();
}

void Agent::ask_to_join(int64_t now_ns) {
  deadline_ns_ = now_ns + options_.join_ns;
  const Message join = about_next(MessageType::kJoin);
  for (const Member& contact : contacts_) world_.send(contact, join);
}

void Agent::adopt(const Membership& epoch) {
  if (epoch.number <= membership_.number) return;
  const bool is_in = epoch.rank_of(self_.id) >= 0;
  if (phase_ == Phase::kJoining && !is_in) {
    contacts_ = epoch.members;
    return;
  }
  world_.stop_worker();
  if (!is_in) {
    return leave(Leaving::kLeftBehind, text("membership ", epoch.number,
                                            " began without this rank, whose answer did not come in time"));
  }
  membership_ = epoch;
  for (const Member& member : epoch.members) met_[member.id] = member;
  phase_ = Phase::kWorking;
  stage_ = Stage::kWaiting;
  promised_ = accepted_ = ballot_ = {};
  value_.reset();
  proposal_.reset();
  promises_.clear();
  accepts_.clear();
  std::erase_if(newcomers_, [&](const auto& newcomer) { return membership_.rank_of(newcomer.first) >= 0; });
  deadline_ns_ = give_up_at_ns_ = INT64_MAX;
  world_.start_worker(membership_);
}

void Agent::leave(Leaving why, const std::string& reason) {
  phase_ = Phase::kLeft;
  world_.leave(why, reason);
}

}  // namespace sluice::membership
