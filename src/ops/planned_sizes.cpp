#include "ops/planned_sizes.h"

#include <algorithm>
#include <bit>

namespace sluice::ops {
namespace {

constexpr int64_t kLeastPlannedLength = 512;

// A class of sizes: those from `least` to `most`.
struct Class {
  int64_t least = 0, most = 0;
};

// The classes that numbers up to `limit` fall into.
template <typename Round>
std::vector<Class> classes_up_to(int64_t limit, Round round) {
  std::vector<Class> classes;
  for (int64_t least = 1; least <= limit; least = classes.back().most + 1)
    classes.push_back({least, round(least)});
  return classes;
}

}  // namespace

int64_t planned_length(int64_t longest) {
  int64_t planned = kLeastPlannedLength;
  while (planned < longest) planned *= 4;
  return planned;
}

int64_t planned_rows(int64_t rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(rows, kLeastPlannedRows))));
}

PlannedSizes planned_sizes(PlannedFor direction, const SequenceGroup& group, int64_t rows, int64_t key_rows) {
  const int64_t longest = planned_length(std::max(group.longest, group.longest_keys));
  const int64_t all = direction == PlannedFor::kForward ? 0 : planned_rows(std::max(rows, key_rows));
  return {group.count, longest, longest, all, all};
}

std::vector<PlannedSizes> all_planned_sizes(PlannedFor direction, const RowLimits& limits) {
  std::vector<Class> rows = classes_up_to(limits.rows, planned_rows);
  if (direction == PlannedFor::kForward) rows = {{1, limits.rows}};
  std::vector<PlannedSizes> sizes;
  for (const Class& length : classes_up_to(limits.longest, planned_length)) {
    for (int64_t count = 1; count <= kMostGrouped; count *= 4) {
      // The group's longest sequence has so many rows, and each other one at least one.
      const int64_t least_rows = length.least + count - 1;
      for (const Class& all : rows) {
        if (least_rows > std::min(all.most, limits.rows)) continue;
        sizes.push_back(planned_sizes(direction, {.count = count, .longest = length.most}, all.most, 0));
      }
    }
  }
  return sizes;
}

PlannedSizes planned_page_sizes(const SequenceGroup& group) {
  return {.sequences = group.count,
          .longest = group.longest == 1 ? 1 : planned_length(group.longest),
          .longest_keys = planned_length(group.longest_keys)};
}

std::vector<PlannedSizes> all_planned_page_sizes(const RowLimits& limits) {
  std::vector<PlannedSizes> sizes;
  for (const Class& keys : classes_up_to(limits.longest, planned_length)) {
    std::vector<int64_t> queries{1};
    for (const Class& more : classes_up_to(std::min(keys.most, limits.longest), planned_length))
      queries.push_back(more.most);
    for (const int64_t longest : queries) {
      for (int64_t count = 1; count <= kMostGrouped; count *= 4)
        sizes.push_back({.sequences = count, .longest = longest, .longest_keys = keys.most});
    }
  }
  return sizes;
}

}  // namespace sluice::ops
