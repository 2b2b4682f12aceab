#include "transport/parent_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice::transport {
namespace {

// A parent starts a child and dies once the child watches; the child then reports what it noticed.
TEST(ParentWatch, DeathOfTheParentIsNoticed) {
  int said[2];
  int watching[2];
  ASSERT_EQ(pipe(said), 0);
  ASSERT_EQ(pipe(watching), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const pid_t own = getpid();
    if (fork() == 0) {
      const ParentWatch watch([&](pid_t dead) {
        const char verdict = dead == own ? 'y' : 'n';
        static_cast<void>(!write(said[1], &verdict, 1));
        _exit(0);
      });
      static_cast<void>(!write(watching[1], "w", 1));
      while (true) pause();
    }
    char ready = 0;
    static_cast<void>(!read(watching[0], &ready, 1));
    _exit(0);
  }
  waitpid(parent, nullptr, 0);
  close(said[1]);
  close(watching[1]);
  char verdict = 0;
  EXPECT_EQ(read(said[0], &verdict, 1), 1);
  EXPECT_EQ(verdict, 'y');
}

TEST(ParentWatch, LivingParentIsNoNews) {
  const ParentWatch watch([](pid_t) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace sluice::transport
