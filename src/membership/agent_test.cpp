#include "membership/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "membership/test_world.h"

namespace sluice::membership {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

std::vector<MemberId> ids(const Membership& membership) {
  std::vector<MemberId> ids;
  for (const Member& member : membership.members) ids.push_back(member.id);
  return ids;
}

TEST(Agent, SurvivorsGoOnFromTheNewestStepThatAllOrTheirBuddiesSealed) {
  TestWorld world({.ranks = 4, .seed = 1});
  world.run_until(5 * kSecond);
  const int64_t step = world.newest_whole_step();
  ASSERT_GT(step, 0);
  world.kill(2);
  world.run_until(10 * kSecond);
  const Membership& membership = world.newest_membership();
  EXPECT_EQ(membership.number, 1);
  EXPECT_THAT(ids(membership), ElementsAre(1, 2, 4));  // members' ids count from 1
  EXPECT_EQ(membership.origin.step, step);
  EXPECT_THAT(membership.origin.holders, ElementsAre(0, 1, 2, 2))
      << "rank 3 keeps its buddy's, rank 2's, slices";
  EXPECT_GT(world.newest_whole_step(), step);
}

TEST(Agent, AKilledWorkerIsReplacedInItsPlace) {
  TestWorld world({.ranks = 3, .seed = 2});
  world.run_until(5 * kSecond);
  const int64_t step = world.newest_whole_step();
  world.kill_worker(0);
  world.run_until(8 * kSecond);
  EXPECT_EQ(world.newest_membership().number, 1);
  EXPECT_THAT(ids(world.newest_membership()), ElementsAre(1, 2, 3));
  EXPECT_EQ(world.newest_membership().origin.step, step);
}

TEST(Agent, WithBothHoldersLostTheNewestCheckpointDecides) {
  TestWorld world({.ranks = 8, .seed = 3});
  world.run_until(5 * kSecond);
  world.kill(3);
  world.kill(4);  // the buddy
  world.run_until(12 * kSecond);
  ASSERT_EQ(world.newest_membership().number, 1);
  EXPECT_EQ(world.newest_membership().origin.step, Origin::kNoSnapshot);
  EXPECT_THAT(world.newest_membership().origin.holders, IsEmpty());
}

TEST(Agent, HalfGoesOnWithTheTieAndTheOtherHalfEnds) {
  TestWorld world({.ranks = 4, .seed = 4});
  world.run_until(5 * kSecond);
  world.cut_off({2, 3});
  world.run_until(150 * kSecond);
  EXPECT_GE(world.newest_membership().number, 1);
  EXPECT_EQ(world.newest_membership().ranks(), 2);
  int left = 0;
  for (int member = 0; member < 4; ++member) left += world.has_left(member) ? 1 : 0;
  EXPECT_EQ(left, 2);
}

TEST(Agent, FewerThanHalfSayWhyTheyEnd) {
  TestWorld world({.ranks = 5, .seed = 5});
  world.run_until(5 * kSecond);
  for (const int member : {0, 1, 2}) world.kill(member);
  world.run_until(100 * kSecond);
  EXPECT_TRUE(world.has_left(3));
  EXPECT_THAT(world.reason(3), HasSubstr("membership 1 cannot begin"));
}

// The surroundings of a single member; records the messages that it sends.
class LoneWorld final : public World {
 public:
  void send(const Member& to, const Message& message) override { sent.emplace_back(to.id, message.type); }
  std::vector<HeldSnapshot> stop_worker() override { return {}; }
  void start_worker(const Membership&) override {}
  void ask_for_boundary() override {}
  bool take_tie(int64_t) override { return true; }
  void warn(const std::string&) override {}
  void leave(Leaving why, const std::string& why_in_words) override {
    left = why;
    reason = why_in_words;
  }
  std::vector<std::pair<MemberId, MessageType>> sent;
  std::optional<Leaving> left;
  std::string reason;
};

Membership epoch_of(int64_t number, const std::vector<MemberId>& members) {
  Membership membership{.number = number};
  for (const MemberId id : members) membership.members.push_back({.id = id, .port = static_cast<int>(id)});
  return membership;
}

TEST(Agent, WithMoreThanHalfDeadNobodyIsWaitedFor) {
  LoneWorld world;
  Agent agent({.id = 5}, epoch_of(0, {1, 2, 3, 4, 5}), world, {});
  agent.on_gone(1, Gone::kForGood, kSecond);
  agent.on_gone(2, Gone::kForGood, kSecond);
  agent.on_gone(3, Gone::kSeemsSo, kSecond);
  EXPECT_FALSE(world.left);
  agent.on_gone(3, Gone::kForGood, kSecond);
  EXPECT_EQ(world.left, Leaving::kNoQuorum);
  EXPECT_EQ(world.reason,
            "membership 1 cannot begin: more than half of the 5 ranks of membership 0 are dead");
}

TEST(Agent, WhoSleptThroughEpochsHearsOfTheEnd) {
  LoneWorld world;
  Agent agent({.id = 1}, epoch_of(0, {1, 2, 3}), world, {});
  Message commit{.type = MessageType::kCommit, .from = {.id = 2}, .membership = 1};
  commit.value = epoch_of(1, {1, 2});
  agent.on_message(commit, kSecond);
  agent.on_run_end(0);
  EXPECT_THAT(world.sent, ElementsAre(std::pair(MemberId{2}, MessageType::kEnded),
                                      std::pair(MemberId{3}, MessageType::kEnded)));
}

Message end_of(const Membership& membership, MemberId from) {
  return {.type = MessageType::kEnded,
          .from = {.id = from},
          .membership = membership.number + 1,
          .value = membership};
}

TEST(Agent, TheEndOfAMembershipWithoutItIsNotAMembersOwn) {
  LoneWorld world;
  Agent agent({.id = 3}, epoch_of(0, {1, 2, 3}), world, {});
  agent.on_message(end_of(epoch_of(2, {1, 2, 4}), 1), kSecond);
  EXPECT_EQ(world.left, Leaving::kLeftBehind);
  EXPECT_EQ(agent.run_end(), std::nullopt);
}

TEST(Agent, TheEndOfANewerMembershipIsThatOfItsMembersWhoeverTellsIt) {
  for (const MemberId teller : {1, 4}) {
    LoneWorld world;
    Agent agent({.id = 3}, epoch_of(0, {1, 2, 3}), world, {});
    agent.on_worker_end(kSecond);
    agent.on_message(end_of(epoch_of(2, {1, 3, 4}), teller), kSecond);
    EXPECT_EQ(world.left, Leaving::kRunEnded) << "told by " << teller;
  }
}

TEST(Agent, TheEndOfAnOlderMembershipIsThatOfItsMembersAlone) {
  LoneWorld world;
  Agent agent({.id = 1}, epoch_of(4, {1, 2}), world, {});
  agent.on_message(end_of(epoch_of(3, {1, 2, 3}), 3), kSecond);
  EXPECT_EQ(world.left, std::nullopt);
  EXPECT_EQ(agent.run_end(), std::nullopt);
}

TEST(Agent, AMemberThatSleptUntilTheEndOfTheOthersIsLeftBehind) {
  TestWorld world({.ranks = 5, .seed = 8});
  world.run_until(5 * kSecond);
  world.cut_off({1});
  world.run_until(40 * kSecond);
  ASSERT_EQ(world.newest_membership().ranks(), 4);
  world.heal();
  world.end_run();
  world.run_until(41 * kSecond);
  EXPECT_EQ(world.leaving(1), Leaving::kLeftBehind);
}

TEST(Agent, ANewcomerJoinsBehindAStepAndNoStepIsRepeated) {
  TestWorld world({.ranks = 3, .seed = 6});
  world.run_until(5 * kSecond);
  const int64_t step = world.newest_whole_step();
  world.join();
  world.run_until(9 * kSecond);
  EXPECT_THAT(ids(world.newest_membership()), ElementsAre(1, 2, 3, 4));
  EXPECT_GE(world.newest_membership().origin.step, step);
}

TEST(Agent, AMemberThatSleptThroughAnEpochEnds) {
  TestWorld world({.ranks = 5, .seed = 7});
  world.run_until(5 * kSecond);
  world.cut_off({1});
  world.run_until(40 * kSecond);
  EXPECT_EQ(world.newest_membership().ranks(), 4);
  world.heal();
  world.run_until(150 * kSecond);
  EXPECT_TRUE(world.has_left(1));
  EXPECT_EQ(world.newest_membership().ranks(), 4);
}

// Losses, dead workers, partitions and newcomers at random moments. TestWorld itself checks three invariants:
// no two memberships of one number begin, none makes a step after a later one has begun, and each one's
// origin is complete.
void expect_whole_runs(uint64_t schedules) {
  int64_t epochs = 0;
  for (uint64_t seed = 1; seed <= schedules; ++seed) {
    const RandomSchedule outcome = run_random_schedule(seed);
    EXPECT_EQ(outcome.fault, "") << "seed " << seed;
    epochs += outcome.memberships;
  }
  EXPECT_GT(epochs, static_cast<int64_t>(schedules));
}

TEST(Agent, RandomSchedulesNeverSplitTheRun) { expect_whole_runs(2'000); }
// Run by `make soak`.
TEST(Agent, DISABLED_TenThousandRandomSchedulesNeverSplitTheRun) { expect_whole_runs(10'000); }

TEST(Message, TextIsReadBack) {
  Message message{.type = MessageType::kPromise, .membership = 3, .ballot = {2, 77}, .accepted = {1, 5}};
  message.from = {
      .id = 0xfedcba9876543210, .host = "node", .address = "10.0.0.1", .port = 1, .store_port = 2};
  message.snapshots = {{.step = 7, .membership = 2, .ranks = 4, .rank = 3, .hash = 9, .own = false}};
  message.value = Membership{.number = 3, .members = {message.from}, .origin = {7, 2, {0, 0, 0, 0}}};
  const Message read = message_from_text(to_text(message));
  EXPECT_EQ(read.from, message.from);
  EXPECT_EQ(read.snapshots, message.snapshots);
  EXPECT_EQ(read.value, message.value);
  EXPECT_EQ(read.ballot, message.ballot);
  EXPECT_EQ(to_text(read), to_text(message));
  EXPECT_THROW(message_from_text("{}"), base::InputError);
}

// Step 5 depends on a single member, which has the copy of rank 1's slices: it could be lost next.
TEST(Held, AStepThatNotAllHaveSealedIsNotGoneOnFrom) {
  const auto own = [](int64_t step, int rank) {
    return HeldSnapshot{.step = step, .ranks = 2, .rank = rank};
  };
  HeldSnapshot copy = own(5, 1);
  copy.own = false;
  const std::vector<std::vector<HeldSnapshot>> held{{own(4, 0), own(5, 0), copy}, {own(4, 1)}};
  EXPECT_EQ(newest_origin(held, 0).step, 4);
  EXPECT_EQ(newest_origin(held, 1).step, 5) << "of an epoch before, all that is left counts";
  EXPECT_THAT(newest_origin(held, 0).holders, ElementsAre(0, 1));
}

TEST(Held, DifferingCopiesNameTheRank) {
  const HeldSnapshot own{.step = 4, .membership = 1, .ranks = 2, .rank = 1, .hash = 10, .own = true};
  HeldSnapshot copy = own;
  copy.own = false;
  std::vector<std::vector<HeldSnapshot>> held{{copy}, {own}};
  EXPECT_THAT(differing_copies(held), IsEmpty());
  held[0][0].hash = 11;
  EXPECT_THAT(differing_copies(held), ElementsAre(HasSubstr("rank 1 of membership 1")));
}

// Two members hold each other's slices; a third arrives with snapshots of another history.
TEST(Opening, GoesOnFromTheNewestStepThatIsWholeWithinOneHistory) {
  const auto held = [](int rank, int64_t step, int64_t epoch, bool own) {
    return HeldSnapshot{.step = step, .membership = epoch, .ranks = 2, .rank = rank, .own = own};
  };
  std::vector<Arrival> arrivals(3);
  arrivals[0] = {.member = {.id = 1}, .history = 5, .snapshots = {held(0, 8, 2, true), held(1, 8, 2, false)}};
  arrivals[1] = {.member = {.id = 2}, .history = 6, .snapshots = {held(1, 9, 4, true)}};
  arrivals[2] = {.member = {.id = 3}};
  FirstMembership opening = first_membership_of(arrivals);
  EXPECT_EQ(opening.history, 5u);
  EXPECT_EQ(opening.membership.number, 3) << "no epoch of that history had this number";
  EXPECT_EQ(opening.membership.origin.step, 8);
  EXPECT_THAT(opening.membership.origin.holders, ElementsAre(0, 0));
  EXPECT_THAT(ids(opening.membership), ElementsAre(1, 2, 3));
  const FirstMembership copy = first_membership_from_json(to_json(opening), "copy");
  EXPECT_EQ(copy.membership, opening.membership);
  EXPECT_EQ(copy.history, opening.history);

  arrivals[0].snapshots.pop_back();
  opening = first_membership_of(arrivals);
  EXPECT_EQ(opening.history, 0u);
  EXPECT_EQ(opening.membership.number, 0);
  EXPECT_EQ(opening.membership.origin.step, Origin::kNoSnapshot);
  arrivals[1].history = 5;
  EXPECT_EQ(first_membership_of(arrivals).membership.origin.step, Origin::kNoSnapshot)
      << "slices of different moments";
}

}  // namespace
}  // namespace sluice::membership
