#include "published/byte_scale.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/error.h"
#include "plan/test_lane_plans.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int kLanes = 6;
constexpr int64_t kLaneTokens = 1000;  // C

// Everything by search over plain lists.
struct Literal {
  const plan::SchemeCost& scheme;
  const std::vector<int64_t>& lengths;
  plan::LaneLists lists = plan::LaneLists(kLanes);

  int64_t length(int s) const { return lengths[static_cast<size_t>(s)]; }
  int lanes_of(int s) const { return static_cast<int>((length(s) + kLaneTokens - 1) / kLaneTokens); }
  int64_t tokens_of(const std::vector<int>& sequences) const {
    int64_t tokens = 0;
    for (const int s : sequences) tokens += length(s);
    return tokens;
  }
  int64_t ns(const std::vector<int>& sequences, int lanes) const {
    cost::Work work;
    for (const int s : sequences) work += plan::SchemeCost::fullest_share(length(s), lanes);
    return scheme.micro_batch_work_ns(work, lanes);
  }

  void naive() {
    std::vector<std::vector<int>> micro_batches;
    std::vector<std::vector<int>> bins;
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
      if (lanes_of(s) > 1) {
        micro_batches.push_back({s});
        continue;
      }
      std::vector<int>* best = nullptr;
      for (std::vector<int>& bin : bins) {
        const bool fits = tokens_of(bin) + length(s) <= kLaneTokens;
        if (fits && (best == nullptr || tokens_of(bin) > tokens_of(*best))) best = &bin;
      }
      if (best == nullptr) best = &bins.emplace_back();
      best->push_back(s);
    }
    micro_batches.insert(micro_batches.end(), bins.begin(), bins.end());
    std::vector<int> used;
    std::vector<std::vector<std::tuple<int, int, std::vector<int>>>> rounds;
    for (const std::vector<int>& micro_batch : micro_batches) {
      const int lanes = micro_batch.size() == 1 ? lanes_of(micro_batch.front()) : 1;
      size_t round = 0;
      while (round < used.size() && kLanes - used[round] < lanes) ++round;
      if (round == used.size()) {
        used.push_back(0);
        rounds.emplace_back();
      }
      rounds[round].emplace_back(used[round], lanes, micro_batch);
      used[round] += lanes;
    }
    for (const auto& round : rounds) {
      for (const auto& [first, lanes, unit] : round) plan::append_to(lists, first, lanes, unit);
    }
  }

  std::vector<std::vector<int>> buckets() const {
    std::vector<int> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return length(a) > length(b); });
    int64_t all_ns = 0;
    for (const int s : order) all_ns += ns({s}, 1);
    const int64_t count = (tokens_of(order) + kLanes * kLaneTokens - 1) / (kLanes * kLaneTokens);
    std::vector<std::vector<int>> buckets(1);
    int64_t sum_ns = 0;
    for (const int s : order) {
      if (!buckets.back().empty() && sum_ns * count >= all_ns * static_cast<int64_t>(buckets.size())) {
        buckets.emplace_back();
      }
      buckets.back().push_back(s);
      sum_ns += ns({s}, 1);
    }
    return buckets;
  }

  void balance(bool in_turns) {
    std::vector<std::vector<int>> left = buckets();
    std::vector<int64_t> exec(kLanes, 0);
    size_t turn = 0;
    const auto bucket = [&] { return in_turns ? turn = turn % left.size() : 0; };
    const auto take = [&](size_t from) {
      left[from].erase(left[from].begin());
      if (left[from].empty()) {
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(from));
      } else {
        ++turn;
      }
    };
    while (!left.empty()) {
      const int64_t last = *std::max_element(exec.begin(), exec.end());
      std::vector<bool> target(kLanes, false);
      for (size_t i = 0; i < kLanes; ++i) target[i] = last > exec[i];
      if (std::count(target.begin(), target.end(), true) == 0) target.assign(kLanes, true);
      // The order of the targets is that of the beginning of the round.
      const std::vector<int64_t> began = exec;
      while (!left.empty()) {
        int lane = -1;
        for (int i = 0; i < kLanes; ++i) {
          const auto at = [&](int of) { return began[static_cast<size_t>(of)]; };
          if (target[static_cast<size_t>(i)] && (lane < 0 || at(i) < at(lane))) lane = i;
        }
        if (lane < 0) break;
        std::vector<int> micro_batch = {left[bucket()].front()};
        take(bucket());
        const int lanes = lanes_of(micro_batch.front());
        if (lanes > 1) {
          lane = soonest(exec, lanes);
        } else {
          while (!left.empty() && tokens_of(micro_batch) + length(left[bucket()].front()) <= kLaneTokens) {
            micro_batch.push_back(left[bucket()].front());
            take(bucket());
          }
        }
        const auto first = exec.begin() + lane;
        std::fill(first, first + lanes, *std::max_element(first, first + lanes) + ns(micro_batch, lanes));
        for (int i = lane; i < lane + lanes; ++i) target[static_cast<size_t>(i)] = false;
        plan::append_to(lists, lane, lanes, micro_batch);
      }
    }
  }

  static int soonest(const std::vector<int64_t>& exec, int lanes) {
    int best = 0;
    std::pair<int64_t, int64_t> least{std::numeric_limits<int64_t>::max(), 0};
    for (int lane = 0; lane + lanes <= kLanes; ++lane) {
      const auto first = exec.begin() + lane;
      const std::pair key{*std::max_element(first, first + lanes),
                          -std::accumulate(first, first + lanes, int64_t{0})};
      if (key < least) best = lane;
      least = std::min(least, key);
    }
    return best;
  }
};

TEST(ByteScale, PlansAreThoseOfTheLiteralAlgorithms) {
  const cost::CostModel cost = plan::test_cost();
  for (uint64_t seed = 0; seed < 150; ++seed) {
    base::Rng rng(seed, 31);
    const strategy::Scheme scheme{.pp = static_cast<int>(rng.between(1, 2)), .cp = kLanes};
    const plan::SchemeCost priced(scheme, cost, scheme.ranks());
    const std::vector<int64_t> lengths = plan::random_batch(rng, 40, kLanes * kLaneTokens);
    for (const ByteScaleRule rule :
         {ByteScaleRule::kNaive, ByteScaleRule::kDpBalance, ByteScaleRule::kPpBalance}) {
      Literal literal{priced, lengths};
      if (rule == ByteScaleRule::kNaive) {
        literal.naive();
      } else {
        literal.balance(rule == ByteScaleRule::kPpBalance);
      }
      const strategy::StepPlan plan =
          byte_scale_plan({.scheme = scheme, .rule = rule, .lane_tokens = kLaneTokens}, lengths, cost,
                          scheme.ranks())
              .or_throw();
      plan::expect_valid_and_scored(plan, cost, scheme.ranks());
      ASSERT_EQ(plan::lists_of(plan), literal.lists) << "seed " << seed << " rule " << static_cast<int>(rule);
    }
  }
}

TEST(ByteScale, SequenceThatAllLanesDoNotHoldIsInfeasible) {
  const std::vector<int64_t> lengths = {10, kLanes * kLaneTokens + 1};
  EXPECT_FALSE(
      byte_scale_plan({.scheme = {.cp = kLanes}, .lane_tokens = kLaneTokens}, lengths, plan::test_cost(), 6));
}

TEST(ByteScale, EmptyBatchIsAnEmptyPlan) {
  for (const ByteScaleRule rule : {ByteScaleRule::kNaive, ByteScaleRule::kPpBalance}) {
    EXPECT_EQ(byte_scale_plan({.scheme = {.cp = 2}, .rule = rule}, {}, plan::test_cost(), 2)->estimated_ns,
              0);
  }
}

}  // namespace
}  // namespace sluice::published
