#include "survive/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "base/text.h"
#include "transport/socket.h"

namespace sluice::survive {
namespace {

using ::testing::Contains;

// Seals a snapshot after `step`, as a worker that is a buddy does.
void seal(const WorkerContext& worker_context, int rank, int64_t step) {
  const int ranks = worker_context.membership.ranks();
  Snapshot snapshot{
      .step = step, .membership = worker_context.membership.number, .ranks = ranks, .rank = rank};
  snapshot.copied_rank = (rank + ranks - 1) % ranks;
  snapshot.own_bytes = snapshot.copy_bytes = 4;
  const SnapshotMemory::View view = worker_context.memory->open(snapshot);
  worker_context.memory->seal(snapshot);
}

// Supervisors in their own processes. Their workers run `work` and write lines about what they observe.
class Supervisors : public ::testing::Test {
 protected:
  using Work = std::function<void(const transport::Launch&, const WorkerContext&)>;

  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override {
    for (const auto& [process, rank] : processes_) kill(process, SIGKILL);
    while (!processes_.empty()) wait_for_one();
    std::filesystem::remove_all(folder_);
  }

  void start(int ranks, const Work& work) {
    std::vector<transport::Socket> listeners;
    for (int rank = 0; rank < ranks; ++rank) {
      listeners.push_back(transport::listen_at("127.0.0.1"));
      ports_.push_back(transport::port_of(listeners.back()));
      listening_.push_back(listeners.back().fd());
    }
    for (int rank = 0; rank < ranks; ++rank)
      start_one(rank, listeners[static_cast<size_t>(rank)], false, work);
    listening_.clear();
  }

  void start_one(int rank, const transport::Socket& listener, bool joins, const Work& work) {
    const pid_t process = fork();
    if (process == 0) {
      for (const int other : listening_) {
        if (other != listener.fd()) ::close(other);  // a dead rank's port must not stay open here
      }
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      SupervisorOptions options{.run_directory = folder_, .work = work};
      options.launch = {.launcher = transport::Launcher::kSluice,
                        .rank = rank,
                        .world_size = static_cast<int>(ports_.size()),
                        .secret = "secret",
                        .supervisor_ports = ports_,
                        .supervisor_fd = dup(listener.fd()),
                        .joins = joins};
      sigset_t stopping;
      sigemptyset(&stopping);
      sigaddset(&stopping, SIGTERM);
      sigprocmask(SIG_BLOCK, &stopping, nullptr);
      _exit(supervise(options));
    }
    processes_[process] = rank;
  }

  // {rank, status as returned by waitpid} of the next supervisor to end.
  std::pair<int, int> wait_for_one() {
    int status = 0;
    const pid_t process = waitpid(-1, &status, 0);
    const int rank = processes_.at(process);
    processes_.erase(process);
    return {rank, status};
  }

  std::map<int, int> wait_for_all() {
    std::map<int, int> statuses;
    while (!processes_.empty()) {
      const auto [rank, status] = wait_for_one();
      statuses[rank] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return statuses;
  }

  // Appends one line atomically to a file that all processes share.
  static void say(const std::filesystem::path& folder, const std::string& line) {
    std::ofstream(folder / "lines", std::ios::app) << line + "\n" << std::flush;
  }

  static std::vector<std::string> lines_in(const std::filesystem::path& folder) {
    std::vector<std::string> lines;
    std::ifstream in(folder / "lines");
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<std::string> lines() const { return lines_in(folder_); }

  // Returns once there are `count` lines. A successful worker ends the run, so it first waits for others.
  static void wait_for_lines(const std::filesystem::path& folder, size_t count) {
    while (lines_in(folder).size() < count) usleep(1'000);
  }

  pid_t process_of(int rank) const {
    for (const auto& [process, its_rank] : processes_) {
      if (its_rank == rank) return process;
    }
    return -1;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / base::text("supervisor-test-", getpid());
  std::vector<int> ports_;
  std::vector<int> listening_;  // filled while start() holds all listeners
  std::map<pid_t, int> processes_;
};

TEST_F(Supervisors, AKilledWorkerIsFollowedByAnEpochOfAllThatGoesOnFromWhatWasSealed) {
  start(3, [folder = folder_](const transport::Launch& launch, const WorkerContext& worker_context) {
    say(folder, base::text("epoch ", worker_context.membership.number, " rank ", launch.rank, " of ",
                           launch.world_size, " from ", worker_context.membership.origin.step));
    EXPECT_EQ(worker_context.rank_failures, worker_context.membership.number);
    EXPECT_EQ(worker_context.mtbf_ns() > 0, worker_context.rank_failures > 0);
    if (::testing::Test::HasFailure()) _exit(1);
    if (worker_context.membership.number > 0) {
      wait_for_lines(folder, 6);
      _exit(0);
    }
    seal(worker_context, launch.rank, 7);
    if (launch.rank == 1) {
      usleep(300'000);  // until the others have sealed
      kill(getpid(), SIGKILL);
    }
    pause();
  });
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 0}, {1, 0}, {2, 0}}));
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(lines(), Contains(base::text("epoch 1 rank ", rank, " of 3 from 7")));
}

TEST_F(Supervisors, WithoutASupervisorTheOthersGoOnWithItsBuddysCopy) {
  start(3, [folder = folder_](const transport::Launch& launch, const WorkerContext& worker_context) {
    if (worker_context.membership.number > 0) {
      say(folder, base::text("rank ", launch.rank, " of ", launch.world_size, " from ",
                             worker_context.membership.origin.step, " held by ",
                             worker_context.membership.origin.holders[0]));
      wait_for_lines(folder, 5);
      _exit(0);
    }
    seal(worker_context, launch.rank, 7);
    say(folder, "sealed");
    pause();
  });
  wait_for_lines(folder_, 3);
  kill(process_of(0), SIGKILL);
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 137}, {1, 0}, {2, 0}}));
  EXPECT_THAT(lines(), Contains("rank 0 of 2 from 7 held by 0")) << "the former rank 1 has the copy";
  EXPECT_THAT(lines(), Contains("rank 1 of 2 from 7 held by 0"));
}

TEST_F(Supervisors, AnOwnFailureOfTheWorkersEndsTheRunWithItsStatus) {
  start(2, [](const transport::Launch&, const WorkerContext&) { _exit(3); });
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 3}, {1, 3}}));
}

TEST_F(Supervisors, EpochsThatNeverSealAStepEndTheRun) {
  start(2, [folder = folder_](const transport::Launch& launch, const WorkerContext&) {
    if (launch.rank == 1) kill(getpid(), SIGKILL);
    pause();
  });
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST_F(Supervisors, ASignalGoesToTheWorkers) {
  start(2, [folder = folder_](const transport::Launch&, const WorkerContext&) {
    sigset_t stopping;
    sigemptyset(&stopping);
    sigaddset(&stopping, SIGTERM);
    say(folder, "waiting");
    int number = 0;
    sigwait(&stopping, &number);
    _exit(0);
  });
  wait_for_lines(folder_, 2);
  for (const int rank : {0, 1}) kill(process_of(rank), SIGTERM);
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 0}, {1, 0}}));
}

TEST_F(Supervisors, ANewcomerJoinsWhenTheWorkersHaveSealedAStep) {
  const Work work = [folder = folder_](const transport::Launch& launch, const WorkerContext& worker_context) {
    say(folder, base::text("epoch ", worker_context.membership.number, " rank ", launch.rank, " of ",
                           launch.world_size));
    if (launch.world_size == 3) {
      wait_for_lines(folder, 5);
      _exit(worker_context.rank_failures == 0 ? 0 : 1);
    }
    while (!worker_context.memory->boundary_is_asked() && launch.rank == 0) usleep(10'000);
    if (launch.rank == 0) _exit(transport::kReplaceableStatus);
    pause();
  };
  start(2, work);
  wait_for_lines(folder_, 2);
  const transport::Socket listener = transport::listen_at("127.0.0.1");
  ports_.push_back(transport::port_of(listener));
  start_one(2, listener, true, work);
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_THAT(lines(), Contains("epoch 1 rank 2 of 3"));
}

// All workers end after the same step. The others' next membership lacks the rank that left. Its supervisor
// ends with status 0 and no longer promises anything.
TEST_F(Supervisors, ARankLeavesAndTheOthersGoOn) {
  start(3, [folder = folder_](const transport::Launch& launch, const WorkerContext& worker_context) {
    say(folder, base::text("epoch ", worker_context.membership.number, " rank ", launch.rank, " of ",
                           launch.world_size));
    if (worker_context.membership.number > 0) {
      wait_for_lines(folder, 5);
      _exit(0);
    }
    wait_for_lines(folder, 3);
    if (launch.rank == 1) worker_context.memory->set_leaving();
    // The others end later than rank 1's announcement, because they meet after a step.
    if (launch.rank != 1) usleep(200'000);
    _exit(transport::kReplaceableStatus);
  });
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_THAT(lines(), Contains("epoch 1 rank 1 of 2"));
}

TEST_F(Supervisors, ANewcomerThatIsStoppedBeforeItHasJoinedIsNotMissed) {
  const transport::Socket silent = transport::listen_at("127.0.0.1");
  const transport::Socket listener = transport::listen_at("127.0.0.1");
  ports_ = {transport::port_of(silent), transport::port_of(listener)};
  start_one(1, listener, true, [](const transport::Launch&, const WorkerContext&) {});
  const transport::Socket asked(accept(silent.fd(), nullptr, nullptr));  // it runs and asks to join
  kill(process_of(1), SIGTERM);
  EXPECT_EQ(wait_for_all(), (std::map<int, int>{{1, transport::kReplaceableStatus}}));
}

}  // namespace
}  // namespace sluice::survive
