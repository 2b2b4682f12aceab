#include "base/core_set.h"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "base/group_limits.h"

namespace sluice::base {

CoreSet own_cores() {
  CoreSet own{.processors = group_limits().processors};
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  for (size_t core = 0; core < std::min<size_t>(CPU_SETSIZE, 64 * own.ids.size()); ++core) {
    if (CPU_ISSET(core, &set)) own.ids[core / 64] |= uint64_t{1} << core % 64;
  }
  return own;
}

int cores_together(std::span<const CoreSet> processes) {
  CoreSet all;
  bool limited = true;
  for (const CoreSet& process : processes) {
    for (size_t word = 0; word < all.ids.size(); ++word) all.ids[word] |= process.ids[word];
    limited = limited && process.processors > 0;
    all.processors = std::max(all.processors, process.processors);
  }
  int cores = 0;
  for (const uint64_t word : all.ids) cores += std::popcount(word);
  if (limited) cores = std::min(cores, static_cast<int>(all.processors));
  return std::max(1, cores);
}

}  // namespace sluice::base
