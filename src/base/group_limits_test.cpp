#include "base/group_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "base/file.h"
#include "base/text.h"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr const char* kVersionTwo = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr const char* kVersionOne =
    "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

// A machine's /proc and /sys, with the files that describe control groups.
class Machine {
 public:
  explicit Machine(const std::map<std::string, std::string>& files) {
    for (const auto& [name, content] : files) write(name, content);
  }
  ~Machine() { fs::remove_all(root); }

  void write(const std::string& name, const std::string& content) const {
    make_directories((root / name).parent_path());
    write_file_atomically(root / name, content);
  }

  const fs::path root = fs::temp_directory_path() / text("sluice-groups-", ::getpid());
};

TEST(GroupLimits, NothingIsLimitedWhereNothingSaysSo) {
  const Machine machine({});
  const GroupLimits limits = group_limits(machine.root);
  EXPECT_EQ(limits.memory_bytes, GroupLimits::kNone);
  EXPECT_EQ(limits.left_bytes, GroupLimits::kNone);
  EXPECT_EQ(limits.processors, 0);
}

TEST(GroupLimits, VersionTwoInAContainer) {
  const Machine machine({{"proc/self/cgroup", "0::/\n"},
                         {"proc/self/mountinfo", kVersionTwo},
                         {"sys/fs/cgroup/memory.max", "2147483648\n"},
                         {"sys/fs/cgroup/memory.high", "max\n"},
                         {"sys/fs/cgroup/memory.current", "1073741824\n"},
                         {"sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 268435456\nactive_file 1024\n"},
                         {"sys/fs/cgroup/cpu.max", "200000 100000\n"}});
  const GroupLimits limits = group_limits(machine.root);
  EXPECT_EQ(limits.memory_bytes, 2 * kGiB);
  EXPECT_EQ(limits.left_bytes, kGiB + kGiB / 4 + 512);
  EXPECT_EQ(limits.memory_file, machine.root / "sys/fs/cgroup/memory.max");
  EXPECT_EQ(limits.processors, 2);
}

TEST(GroupLimits, TheLowestLimitOnTheWayUpCounts) {
  const Machine machine({{"proc/self/cgroup", "0::/slurm/job_7/step_0\n"},
                         {"proc/self/mountinfo", kVersionTwo},
                         {"sys/fs/cgroup/slurm/job_7/memory.max", "1073741824\n"},
                         {"sys/fs/cgroup/slurm/job_7/memory.current", "0\n"},
                         {"sys/fs/cgroup/slurm/job_7/cpu.max", "max 100000\n"},
                         {"sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n"},
                         {"sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "150000 100000\n"}});
  const GroupLimits limits = group_limits(machine.root);
  EXPECT_EQ(limits.memory_bytes, kGiB);
  EXPECT_EQ(limits.memory_file, machine.root / "sys/fs/cgroup/slurm/job_7/memory.max");
  EXPECT_EQ(limits.processors, 1.5);
}

TEST(GroupLimits, VersionOneHasATreeForEach) {
  const Machine machine(
      {{"proc/self/cgroup", "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n0::/docker/a\n"},
       {"proc/self/mountinfo", kVersionOne},
       {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
       {"sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "1073741824\n"},
       {"sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes", "536870912\n"},
       {"sys/fs/cgroup/memory/docker/a/memory.stat", "inactive_file 1\ntotal_inactive_file 1024\n"},
       {"sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_quota_us", "300000\n"},
       {"sys/fs/cgroup/cpu,cpuacct/docker/a/cpu.cfs_period_us", "100000\n"}});
  const GroupLimits limits = group_limits(machine.root);
  EXPECT_EQ(limits.memory_bytes, kGiB);
  EXPECT_EQ(limits.left_bytes, kGiB / 2 + 1024);
  EXPECT_EQ(limits.processors, 3);
}

// Version 1 in a container: /proc names the machine's path, and the container's own group is mounted.
TEST(GroupLimits, AContainerThatSeesTheMachinesPath) {
  const Machine machine(
      {{"proc/self/cgroup", "4:memory:/docker/abc\n"},
       {"proc/self/mountinfo", "31 24 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
       {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"}});
  EXPECT_EQ(group_limits(machine.root).memory_bytes, kGiB);
}

TEST(GroupLimits, AGroupOutsideOfWhatIsMountedIsTheMountItself) {
  const Machine machine({{"proc/self/cgroup", "0::/../../outside\n"},
                         {"proc/self/mountinfo", kVersionTwo},
                         {"sys/fs/cgroup/memory.max", "1073741824\n"}});
  EXPECT_EQ(group_limits(machine.root).memory_bytes, kGiB);
}

TEST(MemoryKills, ACountThatGrewExplainsAKill) {
  const Machine machine({{"proc/self/cgroup", "0::/\n"},
                         {"proc/self/mountinfo", kVersionTwo},
                         {"sys/fs/cgroup/memory.max", "1073741824\n"},
                         {"sys/fs/cgroup/memory.events", "low 0\noom 3\noom_kill 1\n"}});
  MemoryKills kills(machine.root);
  EXPECT_EQ(kills.explain(), "");
  machine.write("sys/fs/cgroup/memory.events", "low 0\noom 4\noom_kill 2\n");
  EXPECT_THAT(kills.explain(), HasSubstr("for want of memory within 1.00 GiB"));
  EXPECT_EQ(kills.explain(), "") << "said once";
}

}  // namespace
}  // namespace sluice::base
