#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / text("sluice-file-test-", ::getpid());
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  fs::path directory_;
};

TEST_F(AtomicFileTest, AppearsWholeOrNotAtAll) {
  const fs::path path = directory_ / "value";
  {
    AtomicFile file(path);
    file.write("half");
  }
  EXPECT_TRUE(fs::is_empty(directory_));
  write_file_atomically(path, "whole");
  EXPECT_EQ(read_file(path), "whole");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(AtomicFileTest, APipeIsWrittenToAndStays) {
  const fs::path path = directory_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0644), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(path, "said");
  char read[8] = {};
  EXPECT_EQ(::read(reader, read, sizeof read), 4);
  EXPECT_STREQ(read, "said");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path));
}

TEST_F(AtomicFileTest, ALinkIsFollowedAndStays) {
  const fs::path target = directory_ / "target";
  const fs::path link = directory_ / "link";
  write_file_atomically(target, "old");
  fs::create_symlink("target", link);
  write_file_atomically(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_file(target), "new");
}

TEST_F(AtomicFileTest, MissingDirectoryIsNamed) {
  try {
    AtomicFile file(directory_ / "absent" / "value");
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("absent/value"), std::string::npos);
  }
}

TEST_F(AtomicFileTest, FullDiskLeavesTheOldFile) {
  const fs::path path = directory_ / "value";
  write_file_atomically(path, "old");
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tiny{4096, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  EXPECT_THROW(write_file_atomically(path, std::string(100000, 'x')), RunError);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_file(path), "old");
}

// Longer than the windows that are flushed at once.
TEST_F(AtomicFileTest, LargeFilesArriveWhole) {
  std::string bytes(size_t{75} << 20, '\0');
  for (size_t i = 0; i < bytes.size(); i += 4096) bytes[i] = static_cast<char>(i >> 12);
  const fs::path path = directory_ / "value";
  AtomicFile file(path);
  file.write(std::string_view(bytes).substr(0, 5));
  file.write(std::string_view(bytes).substr(5, size_t{70} << 20));
  file.write(std::string_view(bytes).substr(5 + (size_t{70} << 20)));
  file.commit();
  EXPECT_TRUE(read_file(path) == bytes);
}

// Starts to write `path` in a child process that is then killed.
void die_writing(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(path);
    file.write("half");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
}

TEST_F(AtomicFileTest, PartsOfKilledWritersGoWithTheNextWrite) {
  const fs::path path = directory_ / "value";
  die_writing(path);
  die_writing(directory_ / "value2");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
  write_file_atomically(path, "whole");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
  write_file_atomically(directory_ / "value2", "whole");
  EXPECT_TRUE(fs::exists(path) && fs::exists(directory_ / "value2"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
}

TEST_F(AtomicFileTest, PartsOfLivingWritersStay) {
  const fs::path path = directory_ / "value";
  AtomicFile first(path);
  first.write("first");
  die_writing(path);  // looks for abandoned parts at its start
  first.commit();
  EXPECT_EQ(read_file(path), "first");
}

TEST_F(AtomicFileTest, UnreadableFileIsAnInputError) {
  EXPECT_THROW(read_file(directory_ / "absent"), InputError);
  EXPECT_THROW(read_file(directory_), InputError);
}

}  // namespace
}  // namespace sluice::base
