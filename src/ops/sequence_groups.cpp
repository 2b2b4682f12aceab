#include "ops/sequence_groups.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::ops {
namespace {

int64_t round_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The largest power of four that is at most `value`.
int64_t power_of_four(int64_t value) {
  const int digits = std::bit_width(static_cast<uint64_t>(value));
  return int64_t{1} << ((digits - 1) / 2 * 2);
}

int64_t power_of_two(int64_t value, int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(value, least))));
}

}  // namespace

SequenceTable sequence_table(const std::vector<int64_t>& begins) {
  const auto length = [&](int64_t i) {
    return begins[static_cast<size_t>(i) + 1] - begins[static_cast<size_t>(i)];
  };
  SequenceTable table;
  int64_t lengths = 0;
  for (int64_t left = static_cast<int64_t>(begins.size()) - 1, first = 0; left > 0;) {
    const int64_t count = power_of_four(left);
    SequenceGroup group{.first = first, .count = count, .begins_at = table.begins, .lengths_at = lengths};
    for (int64_t i = first; i < first + count; ++i) group.longest = std::max(group.longest, length(i));
    table.groups.push_back(group);
    table.begins += round_to(count + 1, 2);
    lengths += round_to(count, 4);
    first += count;
    left -= count;
  }
  table.words.resize(static_cast<size_t>(table.begins + lengths / 2));
  for (const SequenceGroup& group : table.groups) {
    for (int64_t i = 0; i <= group.count; ++i) {
      table.words[static_cast<size_t>(group.begins_at + i)] = begins[static_cast<size_t>(group.first + i)];
    }
    auto* of_group = reinterpret_cast<std::byte*>(table.words.data() + table.begins) + 4 * group.lengths_at;
    for (int64_t i = 0; i < group.count; ++i) {
      const auto tokens = static_cast<int32_t>(length(group.first + i));
      std::memcpy(of_group + 4 * i, &tokens, sizeof tokens);
    }
  }
  return table;
}

int64_t planned_length(int64_t longest) { return power_of_two(longest, kLeastPlannedLength); }
int64_t planned_rows(int64_t rows) { return power_of_two(rows, kLeastPlannedRows); }

}  // namespace sluice::ops
