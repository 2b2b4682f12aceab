#include "base/stderr_lines.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace sluice::base {
namespace {

// Redirects this process's stderr to another file for its lifetime.
class Redirected {
 public:
  explicit Redirected(int file) : before_(::dup(STDERR_FILENO)) { ::dup2(file, STDERR_FILENO); }
  ~Redirected() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  int before_;
};

// Fills the writing end. Its flags are restored afterwards, because other processes may share them.
void fill(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  ::fcntl(file, F_SETFL, flags | O_NONBLOCK);
  const std::string page(4096, 'x');
  while (::write(file, page.data(), page.size()) > 0) {
  }
  ::fcntl(file, F_SETFL, flags);
}

void expect_no_waiting(int reading, int writing) {
  fill(writing);
  bool said = true;
  {
    const Redirected redirected(writing);
    said = say_on_stderr("a line\n", 0);
  }
  EXPECT_FALSE(said);
  EXPECT_EQ(::fcntl(writing, F_GETFL) & O_NONBLOCK, 0);
  std::string room(1 << 16, '\0');
  ASSERT_GT(::read(reading, room.data(), room.size()), 0);
  {
    const Redirected redirected(writing);
    said = say_on_stderr("a line\n", 0);
  }
  EXPECT_TRUE(said);
}

TEST(StderrLines, AFullPipeIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  expect_no_waiting(ends[0], ends[1]);
}

TEST(StderrLines, NorIsAFullSocket) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  expect_no_waiting(ends[0], ends[1]);
}

TEST(StderrLines, NobodyBehindAPipeIsNoFailure) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  bool said = true;
  {
    const Redirected redirected(ends[1]);
    said = say_on_stderr("a line\n");
  }
  ::signal(SIGPIPE, before);
  EXPECT_FALSE(said);
}

}  // namespace
}  // namespace sluice::base
