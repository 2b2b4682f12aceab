#include "base/group_limits.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/text.h"

namespace sluice::base {

namespace {

namespace fs = std::filesystem;

// Version 1 has a tree of groups for each controller, version 2 one for all.
enum class Version : uint8_t { kOne, kTwo };

// The process's group and its ancestors as directories, innermost first.
struct Groups {
  Version version = Version::kTwo;
  std::vector<fs::path> folders;
};

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> number_in(const fs::path& path) { return parse_integer(first_line(path)); }

// The number that follows `key` in a file of lines "key number".
std::optional<int64_t> number_of(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  for (int64_t number = 0; file >> word >> number;) {
    if (word == key) return number;
  }
  return std::nullopt;
}

bool names(const std::string& list, const std::string& word) {
  const std::vector<std::string> words = split(list, ',');
  return std::ranges::find(words, word) != words.end();
}

// The mount point of a tree of groups, and the group that is the mount's root.
struct Mount {
  std::string group;
  fs::path folder;
};

std::optional<Mount> mount_of(const fs::path& root, Version version, const std::string& controller) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash));
    std::istringstream back(line.substr(dash + 3));
    std::string skipped, group, folder, type, source, options;
    front >> skipped >> skipped >> skipped >> group >> folder;
    back >> type >> source >> options;
    const bool is_it =
        version == Version::kTwo ? type == "cgroup2" : type == "cgroup" && names(options, controller);
    if (is_it) return Mount{group, root / fs::path(folder).relative_path()};
  }
  return std::nullopt;
}

// A container sees its own group either as "/" or as the path that the machine uses.
std::vector<fs::path> folders_of(const Mount& mount, std::string group) {
  if (mount.group != "/") {
    const bool inside = group.starts_with(mount.group);
    group = inside ? group.substr(mount.group.size()) : "";
  }
  std::error_code ignored;
  fs::path folder = mount.folder / fs::path(group).relative_path();
  if (group.find("/..") != std::string::npos || !fs::is_directory(folder, ignored)) folder = mount.folder;
  folder = folder.lexically_normal();
  std::vector<fs::path> folders;
  while (true) {
    folders.push_back(folder);
    const bool is_below = folder.string().size() > mount.folder.string().size();
    if (!is_below || !folder.has_parent_path()) return folders;
    folder = folder.parent_path();
  }
}

// The trees whose groups may limit `controller` ("memory", "cpu").
std::vector<Groups> groups_of(const fs::path& root, const std::string& controller) {
  std::vector<Groups> trees;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "number:controllers:/group"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const Version version = controllers.empty() ? Version::kTwo : Version::kOne;
    if (version == Version::kOne && !names(controllers, controller)) continue;
    const std::optional<Mount> mount = mount_of(root, version, controller);
    if (mount) trees.push_back({version, folders_of(*mount, line.substr(second + 1))});
  }
  return trees;
}

// The page cache that the kernel drops when memory gets short: inactive pages and half of the active ones.
int64_t reclaimable_bytes(const fs::path& folder, Version version) {
  const std::string prefix = version == Version::kOne ? "total_" : "";
  const fs::path file = folder / "memory.stat";
  return number_of(file, prefix + "inactive_file").value_or(0) +
         number_of(file, prefix + "active_file").value_or(0) / 2;
}

void look_at_memory(const fs::path& folder, Version version, GroupLimits& limits) {
  const std::vector<std::string> files = version == Version::kOne
                                             ? std::vector<std::string>{"memory.limit_in_bytes"}
                                             : std::vector<std::string>{"memory.max", "memory.high"};
  const int64_t used =
      number_in(folder / (version == Version::kOne ? "memory.usage_in_bytes" : "memory.current")).value_or(0);
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // version 1 writes a huge number for "unlimited"
  for (const std::string& file : files) {
    const std::optional<int64_t> limit = number_in(folder / file);
    if (!limit || *limit >= kUnlimited) continue;
    const int64_t left = *limit - used + std::min(used, reclaimable_bytes(folder, version));
    limits.left_bytes = std::min(limits.left_bytes, std::max<int64_t>(0, left));
    if (*limit >= limits.memory_bytes) continue;
    limits.memory_bytes = *limit;
    limits.memory_file = folder / file;
  }
}

void look_at_processors(const fs::path& folder, Version version, GroupLimits& limits) {
  double quota = -1;
  double period = 0;
  if (version == Version::kTwo) {
    std::ifstream file(folder / "cpu.max");
    if (!(file >> quota >> period)) return;  // "max 100000"
  } else {
    quota = static_cast<double>(number_in(folder / "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(number_in(folder / "cpu.cfs_period_us").value_or(0));
  }
  if (quota <= 0 || period <= 0) return;
  const double processors = quota / period;
  limits.processors = limits.processors > 0 ? std::min(limits.processors, processors) : processors;
}

int64_t memory_kills(const fs::path& root) {
  std::optional<int64_t> kills;
  for (const Groups& groups : groups_of(root, "memory")) {
    const char* file = groups.version == Version::kOne ? "memory.oom_control" : "memory.events";
    const std::optional<int64_t> counted = number_of(groups.folders.front() / file, "oom_kill");
    if (counted) kills = kills.value_or(0) + *counted;
  }
  return kills ? *kills : number_of(root / "proc/vmstat", "oom_kill").value_or(0);
}

}  // namespace

GroupLimits group_limits(const fs::path& root) {
  GroupLimits limits;
  for (const Groups& groups : groups_of(root, "memory")) {
    for (const fs::path& folder : groups.folders) look_at_memory(folder, groups.version, limits);
  }
  for (const Groups& groups : groups_of(root, "cpu")) {
    for (const fs::path& folder : groups.folders) look_at_processors(folder, groups.version, limits);
  }
  return limits;
}

MemoryKills::MemoryKills(fs::path root) : root_(std::move(root)), seen_(memory_kills(root_)) {}

std::string MemoryKills::explain() {
  const int64_t kills = memory_kills(root_);
  if (kills <= std::exchange(seen_, kills)) return "";
  const GroupLimits limits = group_limits(root_);
  const std::string limit = limits.memory_bytes == GroupLimits::kNone
                                ? "on this machine"
                                : text("within ", human_bytes(static_cast<double>(limits.memory_bytes)), " (",
                                       limits.memory_file.string(), ")");
  return text(": the kernel ended it for want of memory ", limit,
              ": raise the limit, lower memory.device_gib or run fewer ranks");
}

}  // namespace sluice::base
