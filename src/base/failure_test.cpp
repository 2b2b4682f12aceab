#include "base/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>
#include <stdexcept>
#include <system_error>

namespace sluice::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DescribeFailure, RefusedMemoryAndThreadsNameTheLimitAndTheWayOut) {
  EXPECT_EQ(describe_failure(std::bad_alloc()),
            "out of memory: the machine has no more; free memory, or ask for less");
  {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
    rlimit limited = before;
    limited.rlim_cur = rlim_t{1} << 46;
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
    EXPECT_THAT(describe_failure(std::bad_alloc()),
                AllOf(HasSubstr("out of memory"), HasSubstr("ulimit -v")));
    EXPECT_THAT(describe_failure(std::runtime_error("Error code 12 (Cannot allocate memory)")),
                AllOf(testing::StartsWith("Error code 12"), HasSubstr("ulimit -v")));
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  }
  const std::system_error refused(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_THAT(describe_failure(refused), AllOf(HasSubstr("another thread"), HasSubstr("ulimit -u")));
}

TEST(DescribeFailure, DescriptorsThatAreOutNameTheLimit) {
  EXPECT_THAT(
      describe_failure(std::runtime_error(
          "[enforce fail at /gloo/tcp/socket.cc:24] rv != -1. -1 vs -1. socket: Too many open files")),
      AllOf(testing::StartsWith("socket: Too many open files: this process may have "),
            HasSubstr("ulimit -n")));
}

TEST(DescribeFailure, PlacesInSourcesAreLeftOut) {
  EXPECT_EQ(
      describe_failure(std::runtime_error("[/gloo/tcp/pair.cc:5] Connection closed by peer [127.0.0.1]:9")),
      "Connection closed by peer [127.0.0.1]:9");
  EXPECT_EQ(describe_failure(std::runtime_error("[rank 1] gone")), "[rank 1] gone");
}

TEST(DescribeFailure, OthersAreTheirFirstLine) {
  EXPECT_EQ(describe_failure(std::runtime_error("what is wrong\nException raised from f at g.cpp")),
            "what is wrong");
}

}  // namespace
}  // namespace sluice::base
