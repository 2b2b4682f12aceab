// What the process's control groups (cgroups, v1 and v2) leave it: a container or a batch job has a part of a
// machine, of which /proc shows the whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace sluice::base {

struct GroupLimits {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  int64_t memory_bytes = kNone;  // the lowest limit of the process's group and those around it
  int64_t left_bytes = kNone;  // the least that one of them leaves; pages of files that can go count as free
  std::filesystem::path memory_file;  // that says the lowest limit
  double processors = 0;              // whose time the groups may use at once; 0: no limit
};

// The limits of this process; `root` is where /proc and /sys are, for tests. What cannot be read is no limit.
GroupLimits group_limits(const std::filesystem::path& root = "/");

// Tells whether a child that SIGKILL ended was a victim of missing memory. The kernel counts them: by group,
// or where it does not, on the whole machine.
class MemoryKills {
 public:
  explicit MemoryKills(std::filesystem::path root = "/");

  // Behind "killed by signal 9": why, where the count has grown since this was made or last asked; else
  // empty.
  std::string explain();

 private:
  std::filesystem::path root_;
  int64_t seen_ = 0;
};

}  // namespace sluice::base
