#include "membership/test_world.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace sluice::membership {

using base::text;

namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecondNs = 1000 * kMillisecond;
constexpr int64_t kStepNs = 1500 * kMillisecond;
constexpr int64_t kSilenceNs = 15 * kSecondNs;  // after so long, workers take a silent peer for lost
constexpr int64_t kMeetNs = 20 * kSecondNs;     // for all workers of a membership to arrive

}  // namespace

// One member: the World of its agent.
struct TestWorld::Node final : World {
  struct Slot {
    std::vector<HeldSnapshot> held;  // own slices and those it is the buddy for
    std::pair<int64_t, int64_t> moment() const {
      return held.empty() ? std::pair<int64_t, int64_t>{-1, -1} : std::pair(held[0].membership, held[0].step);
    }
  };

  explicit Node(TestWorld& world) : world(world) {}

  void send(const Member& to, const Message& message) override {
    if (world.random(100) < world.options_.lost_percent) return;
    const auto shared = std::make_shared<const Message>(message);
    world.at(world.now_ns_ + world.random(50 * kMillisecond), [this, id = to.id, shared] {
      Node* node = world.node_of(id);
      if (node == nullptr || !node->alive || !world.reaches(*this, *node)) return;
      node->agent->on_message(*shared, world.now_ns_);
      world.wake(*node);
    });
  }

  std::vector<HeldSnapshot> stop_worker() override {
    if (std::exchange(working, false)) world.tell_of_death(index, false);
    std::vector<HeldSnapshot> held;
    for (const Slot& slot : slots) held.insert(held.end(), slot.held.begin(), slot.held.end());
    return held;
  }

  void start_worker(const Membership& membership) override {
    if (working) world.fail(text("member ", index, " starts a worker beside another"));
    working = true;
    for (Slot& slot : slots) {
      if (slot.moment() != std::pair(membership.origin.membership, membership.origin.step)) slot.held.clear();
    }
    world.begin(*this, membership);
  }

  void ask_for_boundary() override { boundary = true; }
  bool take_tie(int64_t epoch) override {
    return world.ties_.try_emplace(epoch, member.id).first->second == member.id;
  }
  void warn(const std::string& line) override { world.fail(line); }
  void leave(Leaving why, const std::string& words) override {
    working = false;
    alive = false;
    leaving = why;
    reason = words;
    world.tell_of_death(index, true);
  }

  // The older slot, never the one that this worker started from.
  Slot& slot_to_write() { return slots[0].moment() < slots[1].moment() ? slots[0] : slots[1]; }

  TestWorld& world;
  Member member;
  int index = 0;
  std::unique_ptr<Agent> agent;
  bool alive = true;
  bool working = false;
  bool boundary = false;
  std::optional<Leaving> leaving;
  std::string reason;
  int group = 0;
  std::array<Slot, 2> slots;
};

TestWorld::TestWorld(const Options& options) : options_(options), rng_(options.seed) {
  Membership first;
  for (int rank = 0; rank < options.ranks; ++rank) {
    auto node = std::make_unique<Node>(*this);
    node->index = rank;
    node->member.id = static_cast<MemberId>(rank) + 1;
    first.members.push_back(node->member);
    nodes_.push_back(std::move(node));
  }
  for (const auto& node : nodes_) {
    node->agent = std::make_unique<Agent>(node->member, first, *node, AgentOptions{});
    node->start_worker(first);
  }
}

TestWorld::~TestWorld() = default;

void TestWorld::at(int64_t time_ns, std::function<void()> action) {
  events_.push({time_ns, serial_++, std::move(action)});
}

int64_t TestWorld::random(int64_t below) {
  return static_cast<int64_t>(rng_.below(static_cast<uint64_t>(below)));
}

TestWorld::Node* TestWorld::node_of(MemberId id) {
  return id >= 1 && id <= nodes_.size() ? nodes_[id - 1].get() : nullptr;
}

bool TestWorld::reaches(const Node& from, const Node& to) const { return from.group == to.group; }
bool TestWorld::is_alive(int member) const { return nodes_[static_cast<size_t>(member)]->alive; }
bool TestWorld::has_left(int member) const { return leaving(member).has_value(); }
std::optional<Leaving> TestWorld::leaving(int member) const {
  return nodes_[static_cast<size_t>(member)]->leaving;
}
const std::string& TestWorld::reason(int member) const { return nodes_[static_cast<size_t>(member)]->reason; }

void TestWorld::fail(const std::string& fault) {
  if (fault_.empty()) fault_ = text(fault, " at ", now_ns_ / kMillisecond, " ms");
}

void TestWorld::run_until(int64_t time_ns) {
  while (!events_.empty() && events_.top().time_ns <= time_ns && fault_.empty()) {
    const auto action = events_.top().action;
    now_ns_ = events_.top().time_ns;
    events_.pop();
    action();
  }
  now_ns_ = std::max(now_ns_, time_ns);
}

// Schedules the agent's next on_time().
void TestWorld::wake(Node& node) {
  if (!node.alive || node.agent->next_ns() == INT64_MAX) return;
  at(std::max(now_ns_, node.agent->next_ns()), [this, &node] {
    if (!node.alive || now_ns_ < node.agent->next_ns()) return;  // a later call has been scheduled, too
    node.agent->on_time(now_ns_);
    wake(node);
  });
}

void TestWorld::begin(Node& node, const Membership& membership) {
  const auto [begun, is_new] = begun_.try_emplace(membership.number, membership);
  if (!is_new && begun->second != membership) fail(text("two memberships ", membership.number, " began"));
  node.boundary = false;
  at(now_ns_ + kMeetNs, [this, &node, number = membership.number] {
    const bool waits = node.alive && node.working && node.agent->membership().number == number;
    if (!waits || sealing_.contains(number)) return;
    node.working = false;
    node.agent->on_worker_end(now_ns_);
    wake(node);
  });
  start_if_all_are_there(begun->second);
}

void TestWorld::start_if_all_are_there(const Membership& epoch) {
  std::vector<std::vector<HeldSnapshot>> held;
  for (const Member& member : epoch.members) {
    const Node& node = *node_of(member.id);
    if (!node.alive || !node.working || !node.agent || node.agent->membership().number != epoch.number)
      return;
    held.emplace_back();
    for (const Node::Slot& slot : node.slots)
      held.back().insert(held.back().end(), slot.held.begin(), slot.held.end());
  }
  if (epoch.number > 0 && newest_origin(held, Origin::kNoSnapshot) != epoch.origin) {
    fail(text("membership ", epoch.number, " goes on from step ", epoch.origin.step,
              ", its members hold step ", newest_origin(held, Origin::kNoSnapshot).step));
  }
  require_nothing_lost(epoch);
  const int64_t step = std::max<int64_t>(0, epoch.origin.step);
  sealing_[epoch.number];
  for (int rank = 0; rank < epoch.ranks(); ++rank) {
    at(now_ns_ + random(kStepNs), [this, number = epoch.number, step, rank] { seal(number, step, rank); });
  }
}

// Checks that training continues from the newest step that all ranks of some membership sealed, provided that
// each of these ranks or its buddy is still a member.
void TestWorld::require_nothing_lost(const Membership& next) {
  if (whole_step_ < 0) return;
  const Membership& then = begun_.at(whole_epoch_);
  for (int rank = 0; rank < then.ranks(); ++rank) {
    const MemberId own = then.members[static_cast<size_t>(rank)].id;
    const MemberId replica_holder = then.members[static_cast<size_t>((rank + 1) % then.ranks())].id;
    if (next.rank_of(own) < 0 && next.rank_of(replica_holder) < 0) {
      whole_step_ = -1;
      return;
    }
  }
  if (next.origin.step < whole_step_)
    fail(text("membership ", next.number, " goes on from step ", next.origin.step, " instead of ",
              whole_step_));
}

// Seals a rank's snapshot after a step. Once all ranks have sealed it the next step begins.
void TestWorld::seal(int64_t number, int64_t step, int rank) {
  const Membership& epoch = begun_.at(number);
  const int ranks = epoch.ranks();
  Node& node = *node_of(epoch.members[static_cast<size_t>(rank)].id);
  const Node& replica_holder = *node_of(epoch.members[static_cast<size_t>((rank + ranks - 1) % ranks)].id);
  const auto at_work = [&](const Node& one) {
    return one.alive && one.working && one.agent->membership().number == number;
  };
  if (!at_work(node) || !at_work(replica_holder)) return;
  if (!reaches(replica_holder, node)) {  // the network may come back before anybody gives up
    return at(now_ns_ + kSecondNs, [this, number, step, rank] { seal(number, step, rank); });
  }
  HeldSnapshot own{.step = step, .membership = number, .ranks = ranks, .rank = rank, .own = true};
  HeldSnapshot copy{
      .step = step, .membership = number, .ranks = ranks, .rank = (rank + ranks - 1) % ranks, .own = false};
  node.slot_to_write().held = {own, copy};
  std::set<int>& sealed = sealing_[number];
  sealed.insert(rank);
  if (static_cast<int>(sealed.size()) < ranks) return;
  sealed.clear();
  if (begun_.rbegin()->first > number) fail(text("membership ", number, " made a step beside a later one"));
  whole_step_ = step;
  whole_epoch_ = number;
  const bool boundary = node_of(epoch.members[0].id)->boundary;
  for (int other = 0; other < ranks; ++other) {
    Node& worker = *node_of(epoch.members[static_cast<size_t>(other)].id);
    at(now_ns_ + random(kStepNs), [this, &worker, number, step, other, boundary] {
      if (!boundary) return seal(number, step + 1, other);
      if (!worker.alive || !worker.working || worker.agent->membership().number != number) return;
      worker.working = false;
      worker.agent->on_worker_end(now_ns_);
      wake(worker);
    });
  }
}

// Workers notice a lost peer, supervisors an address that cannot be reached any more.
void TestWorld::tell_of_death(int member, bool of_supervisor) {
  const Node& dead = *nodes_[static_cast<size_t>(member)];
  const int64_t epoch = dead.agent ? dead.agent->membership().number : 0;
  for (const auto& other : nodes_) {
    if (other->index == member || !other->alive) continue;
    const int64_t delay_ns = 5 * kMillisecond + random(100 * kMillisecond);
    at(now_ns_ + delay_ns, [this, &dead, &node = *other, epoch, of_supervisor] {
      notice_death(dead, node, epoch, of_supervisor);
    });
  }
}

void TestWorld::notice_death(const Node& dead, Node& node, int64_t epoch, bool of_supervisor) {
  if (!node.alive) return;
  if (!reaches(dead, node)) {
    return at(now_ns_ + kSecondNs,
              [this, &dead, &node, epoch, of_supervisor] { notice_death(dead, node, epoch, of_supervisor); });
  }
  if (of_supervisor)
    node.agent->on_gone(dead.member.id, random(2) == 0 ? Gone::kSeemsSo : Gone::kForGood, now_ns_);
  const Membership& own = node.agent->membership();
  if (node.working && own.number == epoch && own.rank_of(dead.member.id) >= 0) {
    node.working = false;
    node.agent->on_worker_end(now_ns_);
  }
  wake(node);
}

void TestWorld::kill(int member) {
  Node& node = *nodes_[static_cast<size_t>(member)];
  if (!node.alive) return;
  node.alive = node.working = false;
  for (Node::Slot& slot : node.slots) slot.held.clear();
  tell_of_death(member, true);
}

void TestWorld::kill_worker(int member) {
  Node& node = *nodes_[static_cast<size_t>(member)];
  if (!node.alive || !node.working) return;
  node.working = false;
  tell_of_death(member, false);
  node.agent->on_worker_end(now_ns_);
  wake(node);
}

void TestWorld::join() {
  auto node = std::make_unique<Node>(*this);
  node->index = members();
  node->member.id = static_cast<MemberId>(members()) + 1;
  std::vector<Member> contacts;
  for (const auto& other : nodes_) contacts.push_back(other->member);
  node->agent = std::make_unique<Agent>(node->member, contacts, *node, AgentOptions{}, now_ns_);
  nodes_.push_back(std::move(node));
  wake(*nodes_.back());
}

void TestWorld::cut_off(const std::vector<int>& members) {
  for (const int member : members) nodes_[static_cast<size_t>(member)]->group = 1;
  for (const auto& node : nodes_) {
    at(now_ns_ + kSilenceNs + random(kSecondNs), [this, &node = *node] {
      if (!node.alive || !node.working) return;
      const bool alone = std::ranges::any_of(node.agent->membership().members, [&](const Member& member) {
        return !reaches(*node_of(member.id), node);
      });
      if (!alone) return;
      node.working = false;
      node.agent->on_worker_end(now_ns_);
      wake(node);
    });
  }
}

void TestWorld::heal() {
  for (const auto& node : nodes_) node->group = 0;
}

void TestWorld::end_run() {
  for (const Member& member : newest_membership().members) {
    Node& node = *node_of(member.id);
    if (!node.alive) continue;
    node.agent->on_run_end(0);
    node.alive = node.working = false;
  }
}

namespace {

// Describes ranks that make no progress although enough members are alive; "" if there are none.
std::string fault_of_peace(const TestWorld& world, int64_t step_before) {
  const Membership& epoch = world.newest_membership();
  int there = 0;
  for (const Member& member : epoch.members) there += world.is_alive(static_cast<int>(member.id) - 1) ? 1 : 0;
  if (there == epoch.ranks() && world.newest_whole_step() > step_before) return "";
  if (there == 0) return "";
  return text(there, " of ", epoch.ranks(), " ranks of membership ", epoch.number, " stand still at step ",
              world.newest_whole_step());
}

}  // namespace

RandomSchedule run_random_schedule(uint64_t seed) {
  base::Rng rng(seed, 1);
  const auto draw = [&rng](int64_t below) {
    return static_cast<int64_t>(rng.below(static_cast<uint64_t>(below)));
  };
  const int ranks = 4 + static_cast<int>(draw(61) * draw(61) / 60);
  TestWorld world({.ranks = ranks, .seed = seed, .lost_percent = static_cast<int>(draw(4))});
  int64_t time_ns = 0;
  for (int fault = 0; fault < 8; ++fault) {
    // Often before the previous fault has been handled.
    time_ns += draw(2) == 0 ? draw(200 * kMillisecond) : draw(20 * kSecondNs);
    world.run_until(time_ns);
    const int member = static_cast<int>(draw(world.members()));
    switch (draw(6)) {
      case 0:
      case 1: world.kill(member); break;
      case 2: world.kill_worker(member); break;
      case 3: world.join(); break;
      case 4: world.cut_off({member, static_cast<int>(draw(world.members()))}); break;
      case 5: world.heal(); break;
    }
  }
  world.heal();
  world.run_until(time_ns + 150 * kSecondNs);
  const int64_t step = world.newest_whole_step();
  world.run_until(world.now_ns() + 30 * kSecondNs);
  RandomSchedule outcome{world.fault(), world.newest_membership().number + 1};
  if (outcome.fault.empty()) outcome.fault = fault_of_peace(world, step);
  return outcome;
}

}  // namespace sluice::membership
