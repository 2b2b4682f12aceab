// Holders and contenders are objects of this process; "elsewhere" is a machine of another name. Only the
// takeover from a killed process uses a real process.
#include "survive/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <memory>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "survive/watchdog.h"

namespace sluice::survive {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RunLockFiles : public ::testing::Test {
 protected:
  RunLockFiles() : directory_(fs::temp_directory_path() / base::text("sluice-lock-", ::getpid())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~RunLockFiles() override { fs::remove_all(directory_); }

  static RunLockOptions options(const std::string& machine = "") {
    return {.command = "sluice train --config a.toml",
            .beat_ns = 5'000'000,
            .silence_ns = 600'000'000,
            .machine = machine};
  }

  std::string refusal(const RunLockOptions& options) const {
    try {
      RunLock lock(directory_, options);
    } catch (const base::RunError& error) {
      return error.what();
    }
    return "taken";
  }

  // This process takes the lock and is killed.
  void leave_a_dead_holder(const RunLockOptions& options) const {
    const pid_t process = ::fork();
    if (process == 0) {
      const RunLock lock(directory_, options);
      ::raise(SIGKILL);
    }
    ::waitpid(process, nullptr, 0);
  }

  fs::path directory_;
};

TEST_F(RunLockFiles, ALivingHolderIsNamed) {
  const RunLock lock(directory_, options());
  EXPECT_THAT(refusal(options()),
              AllOf(HasSubstr(directory_.string()), HasSubstr(base::text("process ", ::getpid(), " on ")),
                    HasSubstr("sluice train --config a.toml"), HasSubstr("set another log.dir")));
  lock.require_held();
}

// From now on, hard links fail in this process, as on FAT and some FUSE and object-store file systems.
bool refuse_links() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 1, 0),
#ifdef SYS_link
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_link, 0, 1),
#else
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
#endif
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Holds the lock in a process of its own where hard links fail. Returns 0, or the number of the failed check.
int lock_without_links(const fs::path& directory, const RunLockOptions& options) {
  if (!refuse_links()) return 77;
  if (::link(directory.c_str(), (directory / "x").c_str()) == 0 || errno != EPERM) return 1;
  const auto lock = std::make_unique<RunLock>(directory, options);
  try {
    const RunLock second(directory, options);
    return 2;
  } catch (const base::RunError& error) {
    if (std::string(error.what()).find("is being written by") == std::string::npos) return 3;
  }
  lock->require_held();
  lock->release();
  if (RunLock(directory, options).number() != 2) return 4;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory / "lock")) {
    if (entry.path().filename().string().starts_with("draft-")) return 5;
  }
  return 0;
}

TEST_F(RunLockFiles, FileSystemWithoutLinksLocksAsWell) {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(lock_without_links(directory_, options()));
  int status = 0;
  ::waitpid(process, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this system filters no system calls";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(RunLockFiles, NextOneTakesAReleasedLockAtOnce) {
  for (int64_t expected = 1; expected <= 40; ++expected) {
    RunLockOptions elsewhere = options(expected % 2 == 0 ? "here" : "there");
    elsewhere.log = [](const std::string& line) { ADD_FAILURE() << line; };
    const RunLock lock(directory_, elsewhere);
    EXPECT_EQ(lock.number(), expected);
  }
  const auto files = std::distance(fs::directory_iterator(directory_ / "lock"), fs::directory_iterator());
  EXPECT_LT(files, 20) << "old ones are removed";
}

TEST_F(RunLockFiles, KilledHoldersLockIsTakenAtOnceHere) {
  leave_a_dead_holder(options());
  RunLockOptions next = options();
  next.log = [](const std::string& line) { ADD_FAILURE() << line; };
  const RunLock lock(directory_, next);
  EXPECT_EQ(lock.number(), 2);
}

TEST_F(RunLockFiles, SilentHolderElsewhereIsDeadAfterAWhile) {
  leave_a_dead_holder(options("another machine"));
  RunLockOptions next = options("this machine");
  std::string said;
  next.log = [&](const std::string& line) { said = line; };
  const RunLock lock(directory_, next);
  EXPECT_EQ(lock.number(), 2);
  EXPECT_THAT(said, HasSubstr("watching for 600"));
}

TEST_F(RunLockFiles, BeatingHolderElsewhereLives) {
  const RunLock lock(directory_, options("another machine"));
  RunLockOptions next = options("this machine");
  next.silence_ns = 60'000'000'000;
  EXPECT_THAT(refusal(next), HasSubstr("is being written by process "));
}

// Many contenders take over from one dead holder: exactly one succeeds.
TEST_F(RunLockFiles, OneOfManyTakesOver) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    leave_a_dead_holder(options());
    std::atomic<int> taken = 0;
    std::atomic<int> done = 0;
    constexpr int kContenders = 6;
    std::vector<std::thread> contenders;
    for (int i = 0; i < kContenders; ++i) {
      contenders.emplace_back([&] {
        std::unique_ptr<RunLock> lock;
        try {
          lock = std::make_unique<RunLock>(directory_, options());
          ++taken;
        } catch (const base::RunError&) {
        }
        ++done;
        while (done < kContenders) std::this_thread::yield();
      });
    }
    for (std::thread& contender : contenders) contender.join();
    EXPECT_EQ(taken, 1);
  }
}

// A holder whose machine was suspended, or cut off from the file system, wakes up and must not write.
TEST_F(RunLockFiles, HolderThatWasTakenForDeadIsTold) {
  std::atomic<int> lost = 0;
  RunLockOptions sleeping = options("another machine");
  sleeping.beat_ns = 3'600'000'000'000;  // never beats
  RunLock first(directory_, sleeping);
  RunLockOptions next = options("this machine");
  next.silence_ns = 1'000'000;
  const RunLock second(directory_, next);
  EXPECT_EQ(second.number(), 2);
  EXPECT_THROW(first.require_held(), base::RunError);
  first.release();
  second.require_held();
}

TEST_F(RunLockFiles, LossIsNoticedByTheBeat) {
  std::atomic<int> lost = 0;
  RunLockOptions watched = options();
  watched.on_lost = [&](const base::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("was taken over by "));
    ++lost;
  };
  const RunLock lock(directory_, watched);
  fs::copy_file(directory_ / "lock" / "1", directory_ / "lock" / "2");
  while (lost == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Otherwise rank 0, which alone holds the lock, would never look idle to the watchdog.
TEST_F(RunLockFiles, BeatsAreToldFromOtherTransfers) {
  const RunLock lock(directory_, options());
  const auto changed = [&] { return fs::last_write_time(directory_ / "lock" / "1"); };
  // Takes both figures at one moment, with no beat in between.
  const auto others = [&] {
    while (true) {
      const int64_t before = lock.transfers();
      const int64_t all = process_work_done().transfers;
      if (lock.transfers() == before) return all - before;
    }
  };
  const int64_t before = others();
  for (int beats = 0; beats < 20; ++beats) {
    const auto seen = changed();
    while (changed() == seen) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(others(), before);
}

TEST_F(RunLockFiles, RemovedLockIsMadeAnew) {
  const RunLock lock(directory_, options());
  fs::remove(directory_ / "lock" / "1");
  while (!fs::exists(directory_ / "lock" / "1")) std::this_thread::yield();
  lock.require_held();
  EXPECT_THAT(refusal(options()), HasSubstr("is being written by"));
}

TEST_F(RunLockFiles, GarbageInTheLockIsAHolderThatFallsSilent) {
  fs::create_directories(directory_ / "lock");
  base::write_file_atomically(directory_ / "lock" / "7", "{\"process\": [");
  const RunLock lock(directory_, options());
  EXPECT_EQ(lock.number(), 8);
}

}  // namespace
}  // namespace sluice::survive
