#include "survive/snapshot_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "base/text.h"

namespace sluice::survive {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Snapshot snapshot_of(int64_t step, int64_t epoch = 0) {
  return {.step = step,
          .membership = epoch,
          .ranks = 2,
          .rank = 1,
          .copied_rank = 0,
          .own_bytes = 8,
          .copy_bytes = 4,
          .text_bytes = 2};
}

void write(SnapshotMemory& memory, const Snapshot& snapshot, char value) {
  SnapshotMemory::View view = memory.open(snapshot);
  std::memset(view.own(), value, static_cast<size_t>(snapshot.bytes()));
  memory.seal(snapshot);
}

// Runs in a process of its own, as workers do.
int in_worker(const std::function<void()>& body) {
  const pid_t process = fork();
  if (process == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(process, &status, 0);
  return status;
}

TEST(SnapshotMemory, WhatAWorkerSealedIsThereWhenItHasBeenKilled) {
  SnapshotMemory memory;
  const int status = in_worker([&] {
    write(memory, snapshot_of(3), 'a');
    kill(getpid(), SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_THAT(memory.snapshots(), SizeIs(2));
  EXPECT_EQ(memory.snapshots()[0].rank, 1);
  EXPECT_TRUE(memory.snapshots()[0].own);
  EXPECT_EQ(memory.snapshots()[1].rank, 0);
  EXPECT_FALSE(memory.snapshots()[1].own);
  const auto view = memory.find(3, 0);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(std::string(view->own(), 14), std::string(14, 'a'));
  EXPECT_FALSE(memory.find(3, 1).has_value());
}

TEST(SnapshotMemory, AWorkerKilledWhileItWritesLeavesTheSnapshotBefore) {
  SnapshotMemory memory;
  in_worker([&] {
    write(memory, snapshot_of(3), 'a');
    write(memory, snapshot_of(4), 'b');
    SnapshotMemory::View view = memory.open(snapshot_of(5));
    std::memset(view.own(), 'c', 3);
    kill(getpid(), SIGKILL);
  });
  ASSERT_THAT(memory.snapshots(), SizeIs(2));
  EXPECT_EQ(memory.snapshots()[0].step, 4);
  const auto view = memory.find(4, 0);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->copy()[0], 'b');
}

// Step 5 was sealed here but not on all ranks, so the next membership starts from step 4.
TEST(SnapshotMemory, WhatAnEpochGoesOnFromIsNotOverwrittenFirst) {
  SnapshotMemory memory;
  write(memory, snapshot_of(4), 'b');
  write(memory, snapshot_of(5), 'c');
  memory.keep_only(4, 0);
  ASSERT_THAT(memory.snapshots(), SizeIs(2));
  write(memory, snapshot_of(4, 1), 'd');
  EXPECT_TRUE(memory.find(4, 0).has_value());
  EXPECT_TRUE(memory.find(4, 1).has_value());
  write(memory, snapshot_of(5, 1), 'e');
  EXPECT_FALSE(memory.find(4, 0).has_value()) << "the older one goes";
  memory.keep_only(-1, 0);
  EXPECT_THAT(memory.snapshots(), IsEmpty());
}

TEST(SnapshotMemory, WordsGoBothWays) {
  SnapshotMemory memory;
  memory.ask_for_boundary();
  in_worker([&] {
    if (memory.boundary_is_asked()) memory.set_done();
    memory.set_leaving();
  });
  EXPECT_TRUE(memory.is_done());
  EXPECT_TRUE(memory.is_leaving());
  memory.clear_flags();
  EXPECT_FALSE(memory.is_leaving());
  EXPECT_FALSE(memory.is_done());
  EXPECT_FALSE(memory.boundary_is_asked());
}

// Named memory, in a folder in place of /dev/shm.
class NamedSnapshotMemory : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // This supervisor seals a step and is killed.
  void leave(const std::string& identity, int64_t step) {
    in_worker([&] {
      SnapshotMemory memory(NamedMemory{.folder = folder_, .identity = identity});
      memory.set_history(7);
      write(memory, snapshot_of(step), 'a');
      kill(getpid(), SIGKILL);
    });
  }
  NamedMemory again(const std::string& identity) const {
    return {.folder = folder_, .identity = identity, .takes_up = true};
  }
  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / base::text("snapshot-memory-test-", getpid());
};

TEST_F(NamedSnapshotMemory, AKilledSupervisorsSnapshotIsTakenUpByTheNextOne) {
  leave("a", 3);
  SnapshotMemory memory(again("a"));
  EXPECT_EQ(memory.history(), 7u);
  ASSERT_THAT(memory.snapshots(), SizeIs(2));
  const auto view = memory.find(3, 0);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(std::string(view->own(), 14), std::string(14, 'a'));
}

TEST_F(NamedSnapshotMemory, WhatALivingSupervisorHoldsIsLeftAlone) {
  SnapshotMemory living(NamedMemory{.folder = folder_, .identity = "a"});
  write(living, snapshot_of(3), 'a');
  SnapshotMemory memory(again("a"));
  EXPECT_THAT(memory.snapshots(), IsEmpty());
  EXPECT_THAT(living.snapshots(), SizeIs(2));
}

TEST_F(NamedSnapshotMemory, ARunThatBeginsAnewRemovesWhatItsPredecessorLeft) {
  leave("a", 3);
  SnapshotMemory memory(NamedMemory{.folder = folder_, .identity = "a"});
  EXPECT_THAT(memory.snapshots(), IsEmpty());
  EXPECT_EQ(files(), 3) << "its own seals and slots";
}

TEST_F(NamedSnapshotMemory, OtherRunsMemoryIsRemovedOnceItIsStale) {
  leave("b", 3);
  SnapshotMemory memory(again("a"));
  EXPECT_EQ(files(), 6);
  NamedMemory named = again("c");
  named.stale_s = 0;
  SnapshotMemory another(named);
  EXPECT_EQ(files(), 6) << "a's, which lives, and c's";
}

TEST_F(NamedSnapshotMemory, NothingIsLeftOfARunThatHasEnded) {
  SnapshotMemory memory(again("a"));
  write(memory, snapshot_of(3), 'a');
  memory.remove_name();
  EXPECT_EQ(files(), 0);
}

TEST_F(NamedSnapshotMemory, WithoutAFolderTheMemoryHasNoName) {
  SnapshotMemory memory(NamedMemory{.folder = folder_ / "missing", .identity = "a"});
  write(memory, snapshot_of(3), 'a');
  EXPECT_THAT(memory.snapshots(), SizeIs(2));
}

}  // namespace
}  // namespace sluice::survive
