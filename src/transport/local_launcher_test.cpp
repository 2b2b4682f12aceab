#include "transport/local_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "transport/test_launch.h"

namespace sluice::transport {
namespace {

using ::testing::HasSubstr;

LocalLaunch shell(const std::string& script, int ranks) {
  const auto work = [script] {
    leave_listeners_open();
    ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
  };
  return {.work = work, .ranks = ranks};
}

TEST(LocalLauncher, EveryRankGetsItsPlace) {
  const LocalResult result = launch_locally(shell(
      "test \"$SLUICE_WORLD_SIZE\" = 3 && test \"$SLUICE_MASTER_PORT\" -gt 0 && exit $((SLUICE_RANK + 1))",
      3));
  EXPECT_EQ(result.statuses, (std::vector<int>{1, 2, 3}));
}

TEST(LocalLauncher, SuccessOfAllIsSuccess) {
  const LocalResult result = launch_locally(shell("exit 0", 2));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.failed_rank, -1);
  EXPECT_EQ(result.failure, "");
}

TEST(LocalLauncher, FirstFailureNamesRankAndStatus) {
  const LocalResult result = launch_locally(shell("test $SLUICE_RANK = 1 && exit 3; sleep 0.3; exit 1", 3));
  EXPECT_EQ(result.exit_status, 3);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.failure, "rank 1 exited with status 3");
}

TEST(LocalLauncher, AllAreStartedAnewAsOftenAsIsSaid) {
  const std::filesystem::path file = testing::TempDir() + base::text("starts-", ::getpid());
  LocalLaunch launch = shell(
      base::text("echo $SLUICE_SECRET >> ", file.string(), "; test $SLUICE_RANK = 1 && kill -9 $$; exit 0"),
      2);
  int asked = 0;
  launch.begin_anew_after_ns = [&] { return ++asked < 3 ? std::optional<int64_t>(1) : std::nullopt; };
  const LocalResult result = launch_locally(launch);
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 137}));
  EXPECT_EQ(asked, 3);
  // Each start has a new secret, which its ranks share.
  std::ifstream lines(file);
  std::map<std::string, int> ranks_of_secret;
  for (std::string secret; lines >> secret;) ++ranks_of_secret[secret];
  EXPECT_EQ(ranks_of_secret.size(), 3U);
  for (const auto& [secret, ranks] : ranks_of_secret) EXPECT_EQ(ranks, 2);
  std::filesystem::remove(file);
}

TEST(LocalLauncher, ASignalToStopEndsTheWaitForTheNextStart) {
  LocalLaunch launch = shell("exit 3", 2);
  launch.begin_anew_after_ns = [] {
    ::raise(SIGTERM);
    return std::optional<int64_t>(3'600'000'000'000);
  };
  EXPECT_EQ(launch_locally(launch).exit_status, 0);
}

TEST(LocalLauncher, KilledRankIsStatusOneAndNamed) {
  const LocalResult result = launch_locally(shell("test $SLUICE_RANK = 2 && kill -9 $$; exit 0", 3));
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.failure, HasSubstr("rank 2 was killed by signal 9"));
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 0, 137}));
}

TEST(LocalLauncher, AKilledRankIsTheCauseThoughAnotherEndedBefore) {
  const LocalResult result =
      launch_locally(shell("test $SLUICE_RANK = 0 && exit 3; sleep 0.2; kill -9 $$", 2));
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.failure, HasSubstr("rank 1 was killed by signal 9"));
}

TEST(LocalLauncher, OthersAreKilledAfterTheGrace) {
  LocalLaunch launch = shell("test $SLUICE_RANK = 0 && exit 2; exec sleep 100", 2);
  launch.grace_ns = 100'000'000;
  std::vector<std::string> said;
  launch.log = [&](const std::string& line) { said.push_back(line); };
  const LocalResult result = launch_locally(launch);
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.statuses, (std::vector<int>{2, 137}));
  EXPECT_EQ(said.size(), 1) << "who exits says why itself";
}

LocalLaunch supervised(const std::string& script, int ranks) {
  LocalLaunch launch = shell(script, ranks);
  launch.supervised = true;
  launch.grace_ns = 100'000'000;
  return launch;
}

TEST(LocalLauncher, WhoStandsStillWhenTheOthersCameToTheEndIsEnded) {
  LocalLaunch launch = supervised("test $SLUICE_RANK = 1 && kill -STOP $$; exit 0", 2);
  std::vector<std::string> said;
  launch.log = [&](const std::string& line) { said.push_back(line); };
  const LocalResult result = launch_locally(launch);
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 137}));
  ASSERT_EQ(said.size(), 1);
  EXPECT_THAT(said.front(), HasSubstr("rank 1 stands still"));
}

TEST(LocalLauncher, WhoWasLeftBehindAtTheEndIsNoFailure) {
  const LocalResult result = launch_locally(
      supervised(base::text("test $SLUICE_RANK = 0 && exit 0; sleep 0.2; exit ", kReplaceableStatus), 2));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.failed_rank, -1);
}

TEST(LocalLauncher, WithAllLeftBehindTheRunHasFailed) {
  EXPECT_NE(launch_locally(supervised(base::text("exit ", kReplaceableStatus), 2)).exit_status, 0);
}

TEST(LocalLauncher, AKilledSupervisorIsStartedAnewToJoin) {
  const LocalResult result =
      launch_locally(supervised("test $SLUICE_RANK,$SLUICE_JOINS = 1,0 && kill -9 $$; sleep 0.5; test "
                                "$SLUICE_JOINS = 1 && exit 0; exit 0",
                                3));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 0, 0}));
}

TEST(LocalLauncher, WhoWasLeftBehindIsReplacedOnceAndThenDoneWithout) {
  const LocalResult result =
      launch_locally(supervised("test $SLUICE_RANK = 1 && exit 75; sleep 0.5; exit 0", 2));
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 75}));
}

TEST(LocalLauncher, WithNobodyLeftToJoinTheRunHasFailed) {
  const LocalResult result = launch_locally(supervised("kill -9 $$", 1));
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.failure, HasSubstr("rank 0 was killed by signal 9"));
}

TEST(LocalLauncher, AnOwnFailureOfASupervisorIsTheRunS) {
  const LocalResult result = launch_locally(supervised("test $SLUICE_RANK = 1 && exit 2; exec sleep 100", 2));
  EXPECT_EQ(result.exit_status, 2);
  EXPECT_EQ(result.failed_rank, 1);
}

TEST(LocalLauncher, WorkThatReturnsIsSuccess) {
  const LocalResult result = launch_locally({.work = [] {}, .ranks = 2});
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 0}));
}

TEST(LocalLauncher, ARankKeepsNoListenerOfAnother) {
  // The only listener of rank 1, besides those that this process had open before, is its own.
  const std::string listening = "ls -l /proc/self/fd | grep -c socket:";
  const std::string before = base::text("$(", listening, ")");
  LocalLaunch launch = supervised(base::text("test ", before, " = $((SLUICE_RANK == 0 ? 2 : 1))"), 3);
  EXPECT_EQ(launch_locally(launch).statuses, (std::vector<int>{0, 0, 0}));
}

TEST(LocalLauncher, RanksAreCalledSo) {
  const LocalResult result =
      launch_locally({.work =
                          [] {
                            std::ifstream comm("/proc/self/comm");
                            std::string name;
                            std::getline(comm, name);
                            ::_exit(name == base::text("sluice rank ", ::getenv("SLUICE_RANK")) ? 0 : 1);
                          },
                      .ranks = 2});
  EXPECT_EQ(result.exit_status, 0);
}

// Runs `body` in a process of its own.
pid_t in_process(const std::function<void()>& body) {
  const pid_t process = fork();
  if (process == 0) {
    body();
    _exit(0);
  }
  return process;
}

void wait_for_lines(const std::filesystem::path& file, int lines) {
  for (int i = 0; i < 500; ++i) {
    std::ifstream in(file);
    int found = 0;
    for (std::string line; std::getline(in, line);) ++found;
    if (found >= lines) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "the ranks never started";
}

std::filesystem::path fresh_file(const std::string& name) {
  std::filesystem::path file =
      std::filesystem::temp_directory_path() / base::text("sluice-", name, "-", getpid());
  std::filesystem::remove(file);
  return file;
}

TEST(LocalLauncher, TerminationIsPassedOn) {
  const std::filesystem::path file = fresh_file("term");
  const std::string script =
      base::text("trap 'exit 7' TERM; echo up >> ", file.string(), "; while true; do sleep 0.02; done");
  const pid_t launcher = in_process([&] { _exit(launch_locally(shell(script, 2)).exit_status); });
  wait_for_lines(file, 2);
  kill(launcher, SIGTERM);
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  std::filesystem::remove(file);
}

TEST(LocalLauncher, OnceToldToStopTheOthersDoWithoutALostRank) {
  const std::filesystem::path file = fresh_file("lost");
  const std::string script =
      base::text("trap 'test $SLUICE_RANK = 1 && kill -9 $$; sleep 0.2; exit 0' TERM; echo up >> ",
                 file.string(), "; while true; do sleep 0.02; done");
  const pid_t launcher = in_process([&] { _exit(launch_locally(supervised(script, 2)).exit_status); });
  wait_for_lines(file, 2);
  kill(launcher, SIGTERM);
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::filesystem::remove(file);
}

TEST(LocalLauncher, SignalBeforeTheFirstRankStartsNone) {
  const std::filesystem::path file = fresh_file("early");
  const pid_t launcher = in_process([&] {
    sigset_t stopping;
    sigemptyset(&stopping);
    sigaddset(&stopping, SIGTERM);
    sigprocmask(SIG_BLOCK, &stopping, nullptr);
    raise(SIGTERM);
    try {
      launch_locally(shell(base::text("echo up >> ", file.string()), 2));
    } catch (const base::RunError&) {
      _exit(7);
    }
  });
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(LocalLauncher, RanksShareASecretAndRankZeroAlreadyListens) {
  const LocalResult result =
      launch_locally(shell("test ${#SLUICE_SECRET} = 32 || exit 1; test $SLUICE_RANK = 1 && exec test -z "
                           "\"$SLUICE_LISTENING_FD\"; "
                           "ls -l /proc/self/fd/$SLUICE_LISTENING_FD | grep -q socket",
                           2));
  EXPECT_EQ(result.statuses, (std::vector<int>{0, 0}));
}

TEST(LocalLauncher, ChildrenDieWithIt) {
  const std::filesystem::path file = fresh_file("death");
  const std::string script = base::text("echo $$ >> ", file.string(), "; exec sleep 100");
  const pid_t launcher = in_process([&] { launch_locally(shell(script, 2)); });
  wait_for_lines(file, 2);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  std::ifstream in(file);
  for (pid_t child = 0; in >> child;) {
    // A zombie that has not been reaped yet has no command line any more.
    std::string command = "?";
    for (int i = 0; i < 500 && !command.empty(); ++i) {
      std::ifstream line(base::text("/proc/", child, "/cmdline"));
      command.clear();
      std::getline(line, command);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(command, "");
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace sluice::transport
