// Half-open integer intervals and sets of them: the arithmetic under shards, slices and memory.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::base {

// [begin, end), empty when end <= begin.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end > begin ? end - begin : 0; }
  bool empty() const { return end <= begin; }
  bool operator==(const Interval&) const = default;
};

Interval intersect(Interval a, Interval b);

// Part `index` of `parts` nearly equal parts of [0, size): [index·size/parts, (index+1)·size/parts).
// Parts cover [0, size) without overlap and differ in size by at most one.
Interval even_part(int64_t size, int64_t parts, int64_t index);

// Sorted, disjoint, non-touching, non-empty intervals.
class IntervalSet {
 public:
  IntervalSet() = default;
  IntervalSet(std::initializer_list<Interval> intervals);

  // Adds an interval, merging it with the intervals that it touches or overlaps.
  void add(Interval interval);

  const std::vector<Interval>& intervals() const { return intervals_; }
  int64_t size() const;  // elements in all intervals together
  bool empty() const { return intervals_.empty(); }
  bool contains(Interval interval) const;

  // The offset of element `position` of the flat space if the set's intervals are laid end to end. REQUIRES:
  // position lies in the set.
  int64_t offset_of(int64_t position) const;

  // The elements at these offsets, as a set. REQUIRES: 0 <= begin, end <= size().
  IntervalSet part(Interval offsets) const;

  IntervalSet intersect(const IntervalSet& other) const;
  IntervalSet shifted(int64_t distance) const;
  bool operator==(const IntervalSet&) const = default;

 private:
  std::vector<Interval> intervals_;
};

}  // namespace sluice::base
