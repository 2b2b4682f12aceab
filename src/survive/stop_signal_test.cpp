#include "survive/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/stop_signals.h"

namespace sluice::survive {
namespace {

constexpr int64_t kNever_ns = int64_t{3'600'000'000'000};

// Sends a signal to this process and returns once StopSignal's thread has received it.
void send(int signal) {
  ::kill(::getpid(), signal);
  sigset_t pending;
  do {
    std::this_thread::yield();
    ::sigpending(&pending);
  } while (::sigismember(&pending, signal) == 1);
}

// How often `end_now` is called for a process that receives these signals.
int ends(bool deferred, int64_t again_ns, std::initializer_list<int> signals) {
  std::atomic<int> count = 0;
  {
    StopSignal stop([&] { ++count; }, {.again_ns = again_ns});
    if (deferred) stop.defer();
    for (const int signal : signals) send(signal);
    while (!stop.requested()) std::this_thread::yield();
  }
  return count;
}

TEST(StopSignal, FirstIsAskedAbout) { EXPECT_EQ(ends(true, 0, {SIGTERM}), 0); }

// A launcher and its process group: all of them receive the signal, and the launcher forwards it.
TEST(StopSignal, SeveralCloseTogetherAreOne) {
  EXPECT_EQ(ends(true, kNever_ns, {SIGTERM, SIGTERM, SIGINT, SIGTERM}), 0);
}

TEST(StopSignal, OneLongAfterTheFirstEndsAtOnce) { EXPECT_EQ(ends(true, 0, {SIGTERM, SIGTERM}), 1); }

// A signal that came while the process was forked is pending when StopSignal is created.
TEST(StopSignal, OneThatIsPendingIsAskedAboutWhereThereAreStepsToSave) {
  sigset_t stopping;
  sigemptyset(&stopping);
  sigaddset(&stopping, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stopping, nullptr);
  ::kill(::getpid(), SIGTERM);
  std::atomic<int> count = 0;
  {
    StopSignal stop([&] { ++count; }, {.deferring = true});
    while (!stop.requested()) std::this_thread::yield();
  }
  EXPECT_EQ(count, 0);
}

TEST(StopSignal, BatchSystemsAndLostTerminalsAskToo) {
  ::signal(SIGHUP, SIG_DFL);  // independent of the parent process
  EXPECT_EQ(ends(true, kNever_ns, {SIGUSR1}), 0);
  EXPECT_EQ(ends(true, kNever_ns, {SIGHUP}), 0);
}

// Whether a process lives on behind these two signals, of which the second comes when nobody reads it any
// more.
bool lives_on(bool fails) {
  const pid_t process = ::fork();
  if (process == 0) {
    for (int round = 0; round < 100; ++round) {
      try {
        StopSignal stop([] {}, {.deferring = true});
        if (fails) throw base::RunError("a peer was lost");
        ::kill(::getpid(), SIGTERM);  // its thread may not come to read it
      } catch (const base::RunError&) {
      }
      ::kill(::getpid(), SIGTERM);  // the launcher's
      const sigset_t stopping = base::stop_signals();
      const timespec none{};
      while (::sigtimedwait(&stopping, nullptr, &none) > 0) {
      }
      ::pthread_sigmask(SIG_UNBLOCK, &stopping, nullptr);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(StopSignal, ASignalBehindItsEndKillsNobody) {
  EXPECT_TRUE(lives_on(false));
  EXPECT_TRUE(lives_on(true));
}

TEST(StopSignal, NobodyAsksBeforeTheFirstStep) { EXPECT_EQ(ends(false, kNever_ns, {SIGINT}), 1); }

}  // namespace
}  // namespace sluice::survive
