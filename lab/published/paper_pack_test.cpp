#include "published/paper_pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"
#include "cost/table_figures.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int kWorld = 4;

// Eq. 1 by every o_ij, for every V of appendix D's range; nothing fits: infinite.
int64_t literal(const std::vector<int64_t>& lengths, const plan::SchemeCost& scheme, CountRange range) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int count = range.least; count <= range.most; ++count) {
    std::vector<size_t> bin_of(lengths.size(), 0);
    while (true) {
      std::vector<int64_t> times_ns(static_cast<size_t>(count), 0), tokens(static_cast<size_t>(count), 0);
      for (size_t i = 0; i < lengths.size(); ++i) {
        times_ns[bin_of[i]] += printed_ns(scheme, lengths[i]);
        tokens[bin_of[i]] += lengths[i];
      }
      if (*std::max_element(tokens.begin(), tokens.end()) <= scheme.max_len_tokens()) {
        const int64_t longest_ns = *std::max_element(times_ns.begin(), times_ns.end());
        least = std::min(least, longest_ns * (scheme.scheme().pp - 1 + count));
      }
      size_t i = 0;
      while (i < bin_of.size() && ++bin_of[i] == static_cast<size_t>(count)) bin_of[i++] = 0;
      if (i == bin_of.size()) break;
    }
  }
  return least;
}

// So little memory that a micro-batch holds hardly more than UtilLen.
cost::CostModel tight_cost() {
  int64_t bytes = 128'000'000;
  while (true) {
    cost::CostModel cost = plan::test_cost(bytes);
    const plan::SchemeCost scheme({}, cost, kWorld);
    if (scheme.max_len_tokens() < cost::util_len_tokens(scheme.cost(), scheme.scheme()) * 3 / 2) return cost;
    bytes = bytes * 99 / 100;
  }
}

// The released program's c falls due once a micro-batch, whatever is in it.
TEST(PaperPack, ConstantsCountBySequenceOrByMicroBatch) {
  const plan::SchemeCost scheme({.pp = 2}, plan::test_cost(), kWorld);
  const std::vector<int64_t> lengths(6, 50);
  for (const PaperPackRule rule : {PaperPackRule::kLongest, PaperPackRule::kBalanced}) {
    const PaperPacking released =
        pack_by_paper(lengths, scheme, {.rule = rule, .constants = ConstantRule::kReleased});
    const auto count = static_cast<int64_t>(released.micro_batches.size());
    size_t most = 0;
    for (const std::vector<int>& of : released.micro_batches) most = std::max(most, of.size());
    const int64_t longest_ns = static_cast<int64_t>(most) * released_ns(scheme, 50) + scheme.micro_batch_ns();
    EXPECT_EQ(released.estimated_ns, longest_ns * (count + 1));
  }
  EXPECT_EQ(printed_ns(scheme, 50) - released_ns(scheme, 50), scheme.micro_batch_ns());
}

TEST(PaperPack, EqualsEquationOneByEveryPacking) {
  const cost::CostModel roomy = plan::test_cost();
  const cost::CostModel tight = tight_cost();
  int above_the_range = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    base::Rng rng(seed, 41);
    const bool is_tight = seed % 3 == 0;
    const int pp = is_tight ? 1 : static_cast<int>(rng.between(1, 4));
    const plan::SchemeCost scheme({.pp = pp}, is_tight ? tight : roomy, kWorld);
    const int64_t most = scheme.max_len_tokens();
    std::vector<int64_t> lengths;
    for (int64_t i = rng.between(1, 6); i > 0; --i) {
      if (is_tight) lengths.push_back(rng.between(most / 2, most));
      if (!is_tight) lengths.push_back(rng.between(1, rng.below(3) == 0 ? most : 300));
    }
    const PaperPacking packing = pack_by_paper(lengths, scheme, {.tolerance_ppm = 0, .node_budget = 1 << 20});
    ASSERT_TRUE(packing.proved) << "seed " << seed;
    CountRange range = micro_batch_range(lengths, scheme);
    int64_t expected = literal(lengths, scheme, range);
    while (expected == std::numeric_limits<int64_t>::max()) {
      ++above_the_range;
      range = {range.most + 1, range.most + 1};
      expected = literal(lengths, scheme, range);
    }
    EXPECT_EQ(packing.estimated_ns, expected) << "seed " << seed;

    int64_t longest_ns = 0;
    std::vector<int> all;
    for (const std::vector<int>& micro_batch : packing.micro_batches) {
      int64_t ns = 0, tokens = 0;
      for (const int i : micro_batch) {
        ns += printed_ns(scheme, lengths[static_cast<size_t>(i)]);
        tokens += lengths[static_cast<size_t>(i)];
        all.push_back(i);
      }
      EXPECT_FALSE(micro_batch.empty());
      EXPECT_LE(tokens, scheme.max_len_tokens());
      longest_ns = std::max(longest_ns, ns);
    }
    EXPECT_EQ(all.size(), lengths.size());
    const auto count = static_cast<int64_t>(packing.micro_batches.size());
    EXPECT_EQ(longest_ns * (scheme.scheme().pp - 1 + count), packing.estimated_ns);
  }
  EXPECT_GT(above_the_range, 0);
}

TEST(PaperPack, RangeIsAppendixD) {
  const cost::CostModel cost = plan::test_cost();
  const plan::SchemeCost scheme({.pp = 2}, cost, kWorld);
  const int64_t most = scheme.max_len_tokens();
  const int64_t util = cost::util_len_tokens(scheme.cost(), scheme.scheme());
  ASSERT_GT(util, 1);
  ASSERT_LT(10 * util, most);
  EXPECT_EQ(micro_batch_range(std::vector<int64_t>(10, most), scheme), (CountRange{10, 10}));
  EXPECT_EQ(micro_batch_range(std::vector<int64_t>{most, 1}, scheme), (CountRange{2, 2}));
  EXPECT_EQ(micro_batch_range(std::vector<int64_t>(6, util), scheme), (CountRange{1, 6}));
  EXPECT_EQ(micro_batch_range(std::vector<int64_t>(6, util - 1), scheme), (CountRange{1, 5}));
  EXPECT_EQ(micro_batch_range(std::vector<int64_t>{1}, scheme), (CountRange{1, 1}));
  EXPECT_EQ(micro_batch_range(std::vector<int64_t>(6, 2 * util), scheme), (CountRange{1, 6}));
}

TEST(PaperPack, ConstantCountsOnceASequence) {
  const cost::CostModel cost = plan::test_cost();
  const plan::SchemeCost scheme({}, cost, kWorld);
  const std::vector<int64_t> lengths = {10, 20};
  const PaperPacking packing = pack_by_paper(lengths, scheme, {});
  ASSERT_EQ(packing.micro_batches.size(), 1u);
  EXPECT_EQ(packing.estimated_ns, printed_ns(scheme, 10) + printed_ns(scheme, 20));
  EXPECT_GT(packing.estimated_ns, printed_ns(scheme, 30));
}

TEST(PaperPack, NothingToPack) {
  const cost::CostModel cost = plan::test_cost();
  const PaperPacking packing = pack_by_paper({}, plan::SchemeCost({}, cost, kWorld), {});
  EXPECT_TRUE(packing.micro_batches.empty());
  EXPECT_EQ(packing.estimated_ns, 0);
}

}  // namespace
}  // namespace sluice::published
