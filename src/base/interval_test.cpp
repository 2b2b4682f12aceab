#include "base/interval.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace sluice::base {
namespace {

TEST(Interval, IntersectionOfDisjointIsEmpty) {
  EXPECT_TRUE(intersect({0, 3}, {3, 5}).empty());
  EXPECT_EQ(intersect({0, 4}, {3, 5}), (Interval{3, 4}));
}

TEST(Interval, EvenPartsCoverWithoutOverlap) {
  for (int64_t size : {0, 1, 7, 64, 1000003}) {
    for (int64_t parts : {1, 2, 3, 7, 64}) {
      int64_t next = 0;
      for (int64_t index = 0; index < parts; ++index) {
        const Interval part = even_part(size, parts, index);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.size(), size / parts + 1);
        EXPECT_GE(part.size(), size / parts);
        next = part.end;
      }
      EXPECT_EQ(next, size);
    }
  }
}

std::set<int64_t> elements(const IntervalSet& set) {
  std::set<int64_t> all;
  for (const Interval& interval : set.intervals()) {
    for (int64_t i = interval.begin; i < interval.end; ++i) all.insert(i);
  }
  return all;
}

TEST(IntervalSet, AgreesWithSetsOfElements) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    IntervalSet a, b;
    std::set<int64_t> slow_a, slow_b;
    for (int i = 0; i < 5; ++i) {
      for (auto [set, slow] : {std::pair{&a, &slow_a}, std::pair{&b, &slow_b}}) {
        const int64_t begin = rng.between(0, 40);
        const int64_t end = begin + rng.between(0, 9);
        set->add({begin, end});
        for (int64_t x = begin; x < end; ++x) slow->insert(x);
      }
    }
    EXPECT_EQ(elements(a), slow_a);
    EXPECT_EQ(a.size(), static_cast<int64_t>(slow_a.size()));
    std::set<int64_t> slow_both;
    for (int64_t x : slow_a) {
      if (slow_b.contains(x)) slow_both.insert(x);
    }
    EXPECT_EQ(elements(a.intersect(b)), slow_both);
    int64_t offset = 0;
    for (int64_t x : slow_a) EXPECT_EQ(a.offset_of(x), offset++);
  }
}

TEST(IntervalSet, TouchingIntervalsMerge) {
  const IntervalSet set{{4, 6}, {0, 2}, {2, 4}};
  EXPECT_EQ(set.intervals().size(), 1u);
  EXPECT_TRUE(set.contains({1, 5}));
  EXPECT_FALSE(set.contains({5, 7}));
}

}  // namespace
}  // namespace sluice::base
