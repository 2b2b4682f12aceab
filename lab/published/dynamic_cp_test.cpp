#include "published/dynamic_cp.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "plan/test_lane_plans.h"
#include "plan/test_models.h"

namespace sluice::published {
namespace {

constexpr int kAllLanes = 8;
constexpr int64_t kCapacityTokens = 1000;  // C

struct LiteralGroup {
  int lanes = 1;
  std::vector<int> sequences;
};

// Rounds as they are described, every cost computed anew.
struct LiteralRounds {
  const std::vector<int64_t>& lengths;
  plan::LaneLists lists = plan::LaneLists(kAllLanes);

  int64_t length(int s) const { return lengths[static_cast<size_t>(s)]; }
  int lanes_of(int s) const {
    int lanes = 1;
    while (lanes * kCapacityTokens < length(s)) lanes *= 2;
    return lanes;
  }
  int64_t cost(const LiteralGroup& group) const {
    int64_t squares = 0;
    for (const int s : group.sequences) squares += length(s) * length(s);
    return squares / group.lanes;
  }
  std::pair<int64_t, int64_t> spread(const std::vector<LiteralGroup>& groups) const {
    std::pair<int64_t, int64_t> of{cost(groups.front()), cost(groups.front())};
    for (const LiteralGroup& group : groups) {
      of = {std::min(of.first, cost(group)), std::max(of.second, cost(group))};
    }
    return of;
  }
  static int free_lanes(const std::vector<LiteralGroup>& groups) {
    int free = kAllLanes;
    for (const LiteralGroup& group : groups) free -= group.lanes;
    return free;
  }

  void run() {
    std::vector<int> left;
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) left.push_back(s);
    std::stable_sort(left.begin(), left.end(), [&](int a, int b) { return length(a) > length(b); });
    while (!left.empty()) run_round(left);
  }

  void run_round(std::vector<int>& left) {
    std::vector<LiteralGroup> groups;
    bool closed = false;
    const int most = lanes_of(left.front());
    for (size_t i = 0; i < left.size() && !closed;) {
      const int lanes = lanes_of(left[i]);
      size_t to = groups.size();
      if (free_lanes(groups) >= lanes) {
        groups.push_back({.lanes = lanes, .sequences = {}});
      } else {
        for (size_t g = 0; g < groups.size(); ++g) {
          if (groups[g].lanes != lanes) continue;
          if (to == groups.size() || cost(groups[g]) < cost(groups[to])) to = g;
        }
      }
      if (to == groups.size()) {
        ++i;
        continue;
      }
      groups[to].sequences.push_back(left[i]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      const auto [least, largest] = spread(groups);
      closed = lanes < most && free_lanes(groups) == 0 && 20 * (largest - least) <= largest;
    }
    while (trim(groups, left)) {
    }
    widen(groups);
    append(groups);
  }

  // Whether a sequence of the costliest group went back.
  bool trim(std::vector<LiteralGroup>& groups, std::vector<int>& left) const {
    const auto [least, most] = spread(groups);
    if (free_lanes(groups) > 0 || 20 * (most - least) <= most) return false;
    std::vector<LiteralGroup> without = groups;
    size_t costliest = 0;
    while (cost(groups[costliest]) < most) ++costliest;
    if (groups[costliest].sequences.size() < 2) return false;
    without[costliest].sequences.pop_back();
    const auto [least_without, most_without] = spread(without);
    if (most_without - least_without >= most - least) return false;
    left.push_back(groups[costliest].sequences.back());
    std::sort(left.begin(), left.end());
    std::stable_sort(left.begin(), left.end(), [&](int a, int b) { return length(a) > length(b); });
    groups = without;
    return true;
  }

  void widen(std::vector<LiteralGroup>& groups) const {
    for (;;) {
      LiteralGroup* smallest = nullptr;
      for (LiteralGroup& group : groups) {
        if (group.lanes > free_lanes(groups)) continue;
        const bool smaller = smallest == nullptr || group.lanes < smallest->lanes ||
                             (group.lanes == smallest->lanes && cost(group) > cost(*smallest));
        if (smaller) smallest = &group;
      }
      if (smallest == nullptr) return;
      smallest->lanes *= 2;
    }
  }

  void append(std::vector<LiteralGroup> groups) {
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.lanes > b.lanes; });
    int first = 0;
    for (const LiteralGroup& group : groups) {
      std::vector<int> micro_batch;
      int64_t tokens = 0;
      for (const int s : group.sequences) {
        const int64_t more =
            group.lanes == 1 ? length(s) : 2 * ((length(s) + 2 * group.lanes - 1) / (2 * group.lanes));
        if (tokens + more > kCapacityTokens) {
          plan::append_to(lists, first, group.lanes, micro_batch);
          micro_batch.clear();
          tokens = 0;
        }
        micro_batch.push_back(s);
        tokens += more;
      }
      plan::append_to(lists, first, group.lanes, micro_batch);
      first += group.lanes;
    }
  }
};

TEST(DynamicCp, PlansAreThoseOfTheLiteralRounds) {
  const cost::CostModel cost = plan::test_cost();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 32);
    const strategy::Scheme scheme{.pp = static_cast<int>(rng.between(1, 2)), .cp = kAllLanes};
    const std::vector<int64_t> lengths = plan::random_batch(rng, 60, kAllLanes * kCapacityTokens);
    LiteralRounds literal{lengths};
    literal.run();
    const strategy::StepPlan plan =
        dynamic_cp_plan({.scheme = scheme, .lane_tokens = kCapacityTokens}, lengths, cost, scheme.ranks())
            .or_throw();
    plan::expect_valid_and_scored(plan, cost, scheme.ranks());
    ASSERT_EQ(plan::lists_of(plan), literal.lists) << "seed " << seed;
  }
}

// The busiest lane's squares ÷ lanes, the measure of rounds.
double busiest_lane(const strategy::StepPlan& plan, const std::vector<int64_t>& lengths) {
  const plan::LaneLists lists = plan::lists_of(plan);
  std::vector<int> lanes_of(lengths.size());
  for (const auto& lane : lists) {
    for (const auto& micro_batch : lane) {
      for (const int s : micro_batch) ++lanes_of[static_cast<size_t>(s)];
    }
  }
  double most = 0;
  for (const auto& lane : lists) {
    double total = 0;
    for (const auto& micro_batch : lane) {
      for (const int s : micro_batch) {
        const auto length = static_cast<double>(lengths[static_cast<size_t>(s)]);
        total += length * length / lanes_of[static_cast<size_t>(s)];
      }
    }
    most = std::max(most, total);
  }
  return most;
}

// Recorded by tests/data/dynamic_cp/make_fixtures.py from megatron-core itself.
TEST(DynamicCp, IsOnAverageNotSlowerThanTheReleasedScheduler) {
  const auto path = std::filesystem::path(SLUICE_SOURCE_DIR) / "tests/data/dynamic_cp/batches.json";
  std::ifstream file(path);
  const base::Json cases = base::Json::parse(file);
  const cost::CostModel cost = plan::test_cost();
  double sum = 0;
  for (const base::Json& each : cases) {
    const auto lengths = each.at("lengths").get<std::vector<int64_t>>();
    const int lanes = each.at("lanes");
    const strategy::StepPlan plan =
        dynamic_cp_plan({.scheme = {.cp = lanes}, .lane_tokens = each.at("lane_tokens")}, lengths, cost,
                        lanes)
            .or_throw();
    const double ratio = busiest_lane(plan, lengths) / each.at("total").get<double>();
    EXPECT_LT(ratio, 1.15) << each;
    sum += ratio;
  }
  EXPECT_GE(cases.size(), 200u);
  EXPECT_LT(sum / static_cast<double>(cases.size()), 1.0);
}

TEST(DynamicCp, TheNextPowerOfTwoMustHaveItsLanes) {
  const std::vector<int64_t> lengths = {4 * kCapacityTokens + 1};
  EXPECT_FALSE(
      dynamic_cp_plan({.scheme = {.cp = 6}, .lane_tokens = kCapacityTokens}, lengths, plan::test_cost(), 6));
  EXPECT_TRUE(
      dynamic_cp_plan({.scheme = {.cp = 8}, .lane_tokens = kCapacityTokens}, lengths, plan::test_cost(), 8));
}

}  // namespace
}  // namespace sluice::published
