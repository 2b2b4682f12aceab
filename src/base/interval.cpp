#include "base/interval.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace sluice::base {

Interval intersect(Interval a, Interval b) {
  const Interval both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.empty() ? Interval{} : both;
}

// size = whole * parts + rest: no product exceeds 64 bits while there are fewer than 2^31 parts.
Interval even_part(int64_t size, int64_t parts, int64_t index) {
  const int64_t whole = size / parts;
  const int64_t rest = size % parts;
  const auto boundary = [&](int64_t i) { return whole * i + rest * i / parts; };
  return {boundary(index), boundary(index + 1)};
}

IntervalSet::IntervalSet(std::initializer_list<Interval> intervals) {
  for (const Interval& interval : intervals) add(interval);
}

void IntervalSet::add(Interval interval) {
  if (interval.empty()) return;
  const auto first = std::lower_bound(intervals_.begin(), intervals_.end(), interval.begin,
                                      [](const Interval& have, int64_t begin) { return have.end < begin; });
  auto last = first;
  while (last != intervals_.end() && last->begin <= interval.end) {
    interval.begin = std::min(interval.begin, last->begin);
    interval.end = std::max(interval.end, last->end);
    ++last;
  }
  intervals_.insert(intervals_.erase(first, last), interval);
}

int64_t IntervalSet::size() const {
  int64_t total = 0;
  for (const Interval& interval : intervals_) total += interval.size();
  return total;
}

bool IntervalSet::contains(Interval interval) const {
  if (interval.empty()) return true;
  for (const Interval& have : intervals_) {
    if (have.begin <= interval.begin && interval.end <= have.end) return true;
  }
  return false;
}

int64_t IntervalSet::offset_of(int64_t position) const {
  int64_t offset = 0;
  for (const Interval& interval : intervals_) {
    if (position >= interval.begin && position < interval.end) return offset + position - interval.begin;
    offset += interval.size();
  }
  SLUICE_ASSERT(false, text("position ", position, " is not in the set"));
  return -1;
}

IntervalSet IntervalSet::part(Interval offsets) const {
  SLUICE_ASSERT(offsets.empty() || (offsets.begin >= 0 && offsets.end <= size()),
                text("[", offsets.begin, ", ", offsets.end, ") of ", size(), " elements"));
  IntervalSet result;
  int64_t offset = 0;
  for (const Interval& interval : intervals_) {
    const Interval taken = base::intersect(offsets, {offset, offset + interval.size()});
    result.add({interval.begin + taken.begin - offset, interval.begin + taken.end - offset});
    offset += interval.size();
  }
  return result;
}

IntervalSet IntervalSet::intersect(const IntervalSet& other) const {
  IntervalSet both;
  size_t i = 0;
  size_t j = 0;
  while (i < intervals_.size() && j < other.intervals_.size()) {
    const Interval common = base::intersect(intervals_[i], other.intervals_[j]);
    if (!common.empty()) both.intervals_.push_back(common);
    if (intervals_[i].end < other.intervals_[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return both;
}

IntervalSet IntervalSet::shifted(int64_t distance) const {
  IntervalSet moved = *this;
  for (Interval& interval : moved.intervals_) {
    interval.begin += distance;
    interval.end += distance;
  }
  return moved;
}

}  // namespace sluice::base
