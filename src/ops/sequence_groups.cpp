#include "ops/sequence_groups.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace sluice::ops {
namespace {

int64_t round_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The largest power of four that is at most `value`.
int64_t power_of_four(int64_t value) {
  const int digits = std::bit_width(static_cast<uint64_t>(value));
  return int64_t{1} << ((digits - 1) / 2 * 2);
}

using Rows = std::vector<base::Interval>;

// The groups, and where their parts lie in lists.
void add_groups(const Rows& queries, const Rows& keys, SequenceTable& table) {
  for (int64_t left = std::ssize(queries), first = 0; left > 0;) {
    const int64_t count = power_of_four(std::min(left, kMostGrouped));
    SequenceGroup group{
        .first = first, .count = count, .begins_at = table.begins, .lengths_at = table.lengths};
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(first + count); ++i) {
      group.longest = std::max(group.longest, queries[i].size());
      group.longest_keys = std::max(group.longest_keys, keys[i].size());
    }
    table.groups.push_back(group);
    table.begins += round_to(count + 1, 2);
    table.lengths += round_to(count, 4);
    first += count;
    left -= count;
  }
}

void write_begins(const Rows& rows, SequenceTable& table, int64_t list) {
  for (const SequenceGroup& group : table.groups) {
    int64_t* words = table.words.data() + list + group.begins_at;
    for (int64_t i = 0; i < group.count; ++i) words[i] = rows[static_cast<size_t>(group.first + i)].begin;
    words[group.count] = rows[static_cast<size_t>(group.first + group.count - 1)].end;
  }
}

void write_lengths(const Rows& rows, SequenceTable& table, int64_t list) {
  for (const SequenceGroup& group : table.groups) {
    auto* numbers = reinterpret_cast<std::byte*>(table.words.data()) + 4 * (list + group.lengths_at);
    for (int64_t i = 0; i < group.count; ++i) {
      const auto length = static_cast<int32_t>(rows[static_cast<size_t>(group.first + i)].size());
      std::memcpy(numbers + 4 * i, &length, sizeof length);
    }
  }
}

// The same numbers of rows, one behind the other.
Rows one_behind_the_other(const Rows& rows) {
  Rows moved;
  for (const base::Interval& each : rows) {
    const int64_t begin = moved.empty() ? 0 : moved.back().end;
    moved.push_back({begin, begin + each.size()});
  }
  return moved;
}

}  // namespace

SequenceTable sequence_table(const std::vector<int64_t>& begins) {
  Rows rows;
  for (size_t i = 1; i < begins.size(); ++i) rows.push_back({begins[i - 1], begins[i]});
  SequenceTable table;
  add_groups(rows, rows, table);
  table.words.resize(static_cast<size_t>(table.begins + table.lengths / 2));
  write_begins(rows, table, table.begins_of(RowsOf::kQueries));
  write_lengths(rows, table, table.lengths_of(RowsOf::kQueries));
  return table;
}

SequenceTable block_table(const std::vector<base::Interval>& queries,
                          const std::vector<base::Interval>& keys) {
  SequenceTable table{.of_blocks = true};
  add_groups(queries, keys, table);
  table.words.resize(static_cast<size_t>(4 * table.begins + table.lengths));
  write_begins(queries, table, table.begins_of(RowsOf::kQueries));
  write_begins(keys, table, table.begins_of(RowsOf::kKeys));
  write_begins(one_behind_the_other(queries), table, table.begins_of(RowsOf::kQueryResults));
  write_begins(one_behind_the_other(keys), table, table.begins_of(RowsOf::kKeyResults));
  write_lengths(queries, table, table.lengths_of(RowsOf::kQueries));
  write_lengths(keys, table, table.lengths_of(RowsOf::kKeys));
  return table;
}

}  // namespace sluice::ops
