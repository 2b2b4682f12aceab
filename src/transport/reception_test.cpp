// Ranks and strangers are threads and sockets of this process.
#include "transport/reception.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"
#include "transport/store_server.h"

namespace sluice::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kHere = "127.0.0.1";
constexpr int64_t kLongEnough_ns = 20'000'000'000;
const RunKey kKey{"secret", "job 7", 2};

// A store of the run `kKey`, served during this object's lifetime.
struct Served {
  Socket listener = listen_at(kHere);
  int port = port_of(listener);
  StoreServer server{only(std::move(listener)), kKey};

  StoreClient client(int rank, const RunKey& key = kKey, int64_t timeout_ns = kLongEnough_ns) const {
    return {kHere, port, key, rank, timeout_ns};
  }
};

std::string refusal(const Served& run, int rank, const RunKey& key) {
  try {
    run.client(rank, key);
  } catch (const base::RunError& error) {
    return error.what();
  }
  return "let in";
}

TEST(RunKey, ProofIsHmacSha256AndNeedsSecretAndRun) {
  const std::string proof = proof_of(kKey, "hello");
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_EQ(proof, proof_of({"secret", "job 7", 9}, "hello")) << "who states another world size is told so";
  EXPECT_NE(proof, proof_of({"Secret", "job 7", 2}, "hello"));
  EXPECT_NE(proof, proof_of({"secret", "job 8", 2}, "hello"));
  EXPECT_NE(proof, proof_of(kKey, "hallo"));
  EXPECT_NE(proof_of({"a", "b", 1}, "c"), proof_of({"a", "", 1}, "bc"));
  EXPECT_NE(random_secret(), random_secret());
  EXPECT_EQ(random_secret().size(), 32U);
}

TEST(Reception, RanksOfTheRunShareTheStore) {
  const Served run;
  StoreClient zero = run.client(0);
  StoreClient one = run.client(1);
  zero.set("greeting", std::string("a\0b", 3));
  EXPECT_EQ(one.find("greeting"), std::string("a\0b", 3));
  EXPECT_EQ(one.find("nothing"), std::nullopt);
  EXPECT_EQ(one.add("count", 3), 3);
  EXPECT_EQ(zero.add("count", -1), 2);
  EXPECT_EQ(zero.compare_set("leader", "", "zero"), "zero");
  EXPECT_EQ(one.compare_set("leader", "", "one"), "zero");
  EXPECT_EQ(one.size(), 3);
  EXPECT_TRUE(one.erase("count"));
  EXPECT_FALSE(one.erase("count"));
  EXPECT_FALSE(one.wait({"greeting", "late"}, 0));
  std::thread late([&] { zero.set("late", "now"); });
  EXPECT_TRUE(one.wait({"greeting", "late"}, kLongEnough_ns));
  late.join();
  const std::string long_text(3'000'000, 'x');
  zero.set("long", long_text);
  EXPECT_EQ(one.find("long"), long_text);
}

TEST(Reception, OthersAreToldWhyTheyMayNotEnter) {
  const Served run;
  EXPECT_THAT(refusal(run, 1, {"guess", "job 7", 2}), HasSubstr("another run listens at 127.0.0.1 port "));
  EXPECT_THAT(refusal(run, 1, {"secret", "job 8", 2}), HasSubstr("another run listens at 127.0.0.1 port "));
  EXPECT_THAT(refusal(run, 1, {"secret", "job 7", 3}),
              AllOf(HasSubstr("rank 1 of 3 met a run of 2 ranks"), HasSubstr("MASTER_PORT")));
  StoreClient one = run.client(1);
  EXPECT_THAT(refusal(run, 1, kKey), HasSubstr("two processes claim rank 1 of 2"));
  StoreClient zero = run.client(0);
  one.set("key", "whole");
  EXPECT_EQ(zero.find("key"), "whole");
}

TEST(Reception, AnAnswerOpensOneKindOfDoor) {
  const Served run;
  EXPECT_THROW(enter(kHere, run.port, kKey, "heartbeat", 1, kLongEnough_ns), base::RunError);
}

// More silent connections than the server keeps, open all the time, and some that send garbage.
TEST(Reception, StrangersKeepNobodyOut) {
  const Served run;
  std::vector<Socket> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect_to(kHere, run.port, kLongEnough_ns));
  const std::string nonsense(500, '\xff');
  for (int i = 0; i < 20; ++i) {
    write_all(silent[static_cast<size_t>(10 * i)], nonsense.data(), static_cast<int64_t>(nonsense.size()));
  }
  StoreClient zero = run.client(0);
  for (int i = 0; i < 200; ++i) silent.push_back(connect_to(kHere, run.port, kLongEnough_ns));
  StoreClient one = run.client(1);
  zero.set("key", "value");
  EXPECT_EQ(one.find("key"), "value");
}

TEST(Reception, NobodyListensOnceAllRanksHaveCome) {
  const Served run;
  StoreClient zero = run.client(0);
  StoreClient one = run.client(1);
  zero.add("both are in", 1);
  one.add("both are in", 1);
  EXPECT_THROW(connect_to(kHere, run.port, 0), base::RunError);
}

TEST(Reception, WhoWaitsForARankThatLeftIsTold) {
  const Served run;
  StoreClient zero = run.client(0);
  std::optional<StoreClient> one(run.client(1));
  std::thread leaving([&] { one.reset(); });
  try {
    zero.wait({"never"}, kLongEnough_ns);
    ADD_FAILURE() << "it waited";
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 left while the ranks were joining"));
  }
  leaving.join();
}

// A host that does not know the key must not pass for rank 0: it could send the others anything.
TEST(Reception, AHostHasToProveItselfToo) {
  const Socket impostor = listen_at(kHere);
  std::thread welcoming([&] {
    const Socket visitor(accept4(impostor.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string challenge = "sluice 1" + std::string(16, 'n');
    write_all(visitor, challenge.data(), static_cast<int64_t>(challenge.size()));
    std::string answer(16 + 4 + 4 + kProofBytes, '\0');
    read_all(visitor, answer.data(), static_cast<int64_t>(answer.size()), kLongEnough_ns);
    const std::string welcome(4 + 4 + kProofBytes, '\0');
    write_all(visitor, welcome.data(), static_cast<int64_t>(welcome.size()));
  });
  EXPECT_THROW(enter(kHere, port_of(impostor), kKey, "store", 1, kLongEnough_ns), base::RunError);
  welcoming.join();
}

TEST(Reception, AnotherServiceIsNoRank) {
  const Socket service = listen_at(kHere);
  std::thread greeting([&] {
    const Socket visitor(accept4(service.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string banner = "220 mail.example.org ESMTP ready\r\n";
    write_all(visitor, banner.data(), static_cast<int64_t>(banner.size()));
  });
  try {
    enter(kHere, port_of(service), kKey, "store", 1, kLongEnough_ns);
    ADD_FAILURE() << "let in";
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is no rank of Sluice"));
  }
  greeting.join();
}

// Lowers the limit on open files during its lifetime, so that no more can be opened.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

std::string fault_without_descriptors(const std::function<void()>& action) {
  const NoDescriptorsLeft none;
  try {
    action();
  } catch (const base::RunError& error) {
    return error.what();
  }
  return "";
}

TEST(Socket, MissingDescriptorsAreNamedAsTheCause) {
  const Socket listener = listen_at(kHere);
  const int port = port_of(listener);
  EXPECT_THAT(fault_without_descriptors([] { listen_at(kHere); }),
              AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
  EXPECT_THAT(fault_without_descriptors([&] { connect_to(kHere, port, kLongEnough_ns); }),
              AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
}

TEST(Socket, TakenPortIsNamedAsTheCause) {
  const Socket listener = listen_at(kHere);
  try {
    listen_at(kHere, port_of(listener));
    ADD_FAILURE() << "listens";
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Address already in use"), HasSubstr("MASTER_PORT")));
  }
}

}  // namespace
}  // namespace sluice::transport
