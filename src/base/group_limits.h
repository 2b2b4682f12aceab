// Memory and processors that the process's control groups (cgroups v1 and v2) leave it. A container or a
// batch job has a part of a machine, whereas /proc shows the whole machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

namespace sluice::base {

struct GroupLimits {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  int64_t memory_bytes = kNone;  // the lowest limit of the process's group and its ancestors
  int64_t left_bytes = kNone;  // the least that any of these leaves; reclaimable page cache counts as unused
  std::filesystem::path memory_file;  // the file with the lowest limit
  double processors = 0;              // processors' worth of time that the groups allow; 0: no limit
};

// This process's limits. `root` holds /proc and /sys, for tests. An unreadable file sets no limit.
GroupLimits group_limits(const std::filesystem::path& root = "/");

// Tells whether the out-of-memory killer ended a child that died of SIGKILL. The kernel counts its kills for
// each group or, if it does not, for the whole machine.
class MemoryKills {
 public:
  explicit MemoryKills(std::filesystem::path root = "/");

  // Text to append to "killed by signal 9" if the kernel's count has grown since construction or the last
  // call. Otherwise empty.
  std::string explain();

 private:
  std::filesystem::path root_;
  int64_t seen_ = 0;
};

}  // namespace sluice::base
