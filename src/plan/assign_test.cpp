#include "plan/assign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/rng.h"
#include "plan/test_models.h"

namespace sluice::plan {
namespace {

constexpr int kTwelveRanks = 12;
const std::vector<size_t> kGroupOf = {0, 0, 1, 1, 1, 1, 2, 2};

struct Instance {
  explicit Instance(uint64_t seed) : rng(seed, 5) {
    for (int64_t i = rng.between(1, 40); i > 0; --i) {
      const SchemeCost& of = rng.below(4) == 0 ? large : small;
      lengths.push_back(rng.between(1, of.max_len_tokens()));
    }
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    for (size_t k = 0; k < groups.size(); ++k) overheads_ns.push_back(rng.between(0, 100'000));
  }
  cost::CostModel cost = test_cost();
  SchemeCost large{strategy::parse_scheme("<2,1,1>"), cost, kTwelveRanks};
  SchemeCost small{strategy::parse_scheme("<1,1,1>"), cost, kTwelveRanks};
  SchemeCost staged{strategy::parse_scheme("<1,2,1>"), cost, kTwelveRanks};
  std::vector<SchemeGroup> groups = {{&large, 2}, {&small, 4}, {&staged, 2}};
  base::Rng rng;
  std::vector<int64_t> lengths;
  std::vector<int64_t> overheads_ns;
};

// The longest sequence's path beyond the first overhead.
int64_t bubble_ns(const Instance& of, const FloorTable& floors, size_t group, Place longest) {
  const int64_t beyond_ns = floors.path_beyond_ns(longest, group);
  return std::max<int64_t>(0, beyond_ns - of.overheads_ns[group]);
}

// Assignment::fill as its header says it, looking at every pipeline.
std::vector<std::vector<Place>> filled(const Instance& of, const FloorTable& floors,
                                       const std::vector<int64_t>& prices, int64_t target_ns) {
  std::vector<std::vector<Place>> members(kGroupOf.size());
  std::vector<int64_t> ends_ns(members.size());
  for (Place i(0); i < floors.sequences(); ++i) {
    std::tuple<bool, int64_t, int64_t, size_t> best(true, INT64_MAX, INT64_MAX, 0);
    for (size_t p = 0; p < members.size(); ++p) {
      const size_t group = kGroupOf[p];
      const int64_t floor_ns = floors.floor_ns(i, group);
      if (!floors.fits(i, group)) continue;
      int64_t end_ns = ends_ns[p] + floor_ns;
      if (members[p].empty()) {
        const int64_t unfilled_ns = floors.batch_tokens(group) > 0 ? floors.constant_ns(group) / 2 : 0;
        end_ns += of.overheads_ns[group] + unfilled_ns + bubble_ns(of, floors, group, i);
      }
      const bool late = end_ns > target_ns;
      best = std::min(best, std::tuple(late, late ? end_ns : prices[group] * floor_ns, end_ns, p));
    }
    const size_t p = std::get<3>(best);
    ends_ns[p] = std::get<2>(best);
    members[p].push_back(i);
  }
  return members;
}

TEST(Assign, FillTakesTheCheapestPipelineInTime) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Instance of(seed);
    const FloorTable floors(of.lengths, of.groups);
    const std::vector<int64_t> prices = {of.rng.between(1, 1000), of.rng.between(1, 1000),
                                         of.rng.between(1, 1000)};
    const int64_t target_ns = of.rng.between(0, 4 * floors.floor_ns(0, 0));
    Assignment assignment(floors, kGroupOf, of.overheads_ns);
    assignment.fill(prices, target_ns);
    const auto expected = filled(of, floors, prices, target_ns);
    for (size_t p = 0; p < kGroupOf.size(); ++p) {
      ASSERT_EQ(assignment.members(p), expected[p]) << "seed " << seed << " pipeline " << p;
    }
  }
}

// When a pipeline ends as its members say.
int64_t end_ns(const Instance& of, const FloorTable& floors, size_t pipeline,
               const std::vector<Place>& members) {
  if (members.empty()) return 0;
  const size_t group = kGroupOf[pipeline];
  const SchemeCost& scheme = *of.groups[group].scheme;
  const bool in_batches = floors.batch_tokens(group) > 0;
  int64_t work_ns = 0, tokens = 0;
  for (const Place i : members) {
    work_ns += floors.floor_ns(i, group) - (in_batches ? floors.share_ns(i, group) : 0);
    tokens += of.lengths[i];
  }
  const int64_t batches = in_batches ? (tokens + scheme.max_len_tokens() - 1) / scheme.max_len_tokens() : 0;
  return work_ns + batches * scheme.micro_batch_ns() + of.overheads_ns[group] +
         bubble_ns(of, floors, group, std::ranges::min(members));
}

// Nothing got worse, and no single move brings 0.05 % any more.
TEST(Assign, ImproveEndsWhereNoMoveHelps) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Instance of(seed);
    const FloorTable floors(of.lengths, of.groups);
    Assignment assignment(floors, kGroupOf, of.overheads_ns);
    assignment.fill(std::vector<int64_t>{1, 1, 1}, Assignment::kNoTarget);
    const int64_t before_ns = assignment.estimated_ns();
    assignment.improve(0);
    const int64_t after_ns = assignment.estimated_ns();
    ASSERT_LE(after_ns, before_ns);
    size_t last = 0;
    while (assignment.end_ns(last) != after_ns) ++last;
    for (size_t p = 0; p < kGroupOf.size(); ++p) {
      const std::vector<Place>& members = assignment.members(p);
      ASSERT_EQ(assignment.end_ns(p), end_ns(of, floors, p, members));
      for (const Place sequence : assignment.members(last)) {
        if (p == last || of.lengths[sequence] > of.groups[kGroupOf[p]].scheme->max_len_tokens()) continue;
        std::vector<Place> more = members, fewer = assignment.members(last);
        more.push_back(sequence);
        std::erase(fewer, sequence);
        ASSERT_GE(std::max(end_ns(of, floors, p, more), end_ns(of, floors, last, fewer)),
                  after_ns - after_ns / 2048)
            << "seed " << seed << " sequence " << sequence << " to " << p;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::plan
