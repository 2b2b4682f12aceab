// Rows travel to experts and back, on real threads over the fake transport. The sums of all assignments are
// right whatever the routing, and a dispatch chunk keeps its bound.
#include "layers/token_dispatcher.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "comm/test_fake.h"
#include "model/expert_slots.h"

namespace sluice::layers {
namespace {

enum class Routing { kRandom, kOneExpert, kNeighbours };

struct TravelCase {
  std::vector<int64_t> rows;  // by lane
  int64_t experts = 8;
  int64_t per_token = 3;
  Routing routing = Routing::kRandom;
  model::DispatchChunkRows bound{3, 12};
  std::vector<int> placed = {};  // expert by slot; empty: even parts

  std::vector<int> seats() const { return placed.empty() ? model::even_expert_slots(experts) : placed; }
  int lanes() const { return static_cast<int>(rows.size()); }
};
void PrintTo(const TravelCase& c, std::ostream* stream) {
  *stream << c.lanes() << " lanes, " << c.experts << " experts, routing " << static_cast<int>(c.routing);
}

constexpr int64_t kWidth = 5;

Routes routes_of(const TravelCase& c, int lane) {
  const int64_t rows = c.rows[static_cast<size_t>(lane)];
  at::Tensor id_TK = at::empty({rows, c.per_token}, at::kInt);
  for (int64_t row = 0; row < rows; ++row) {
    const at::Tensor all = c.routing == Routing::kRandom ? at::randperm(c.experts) : at::arange(c.experts);
    for (int64_t k = 0; k < c.per_token; ++k) {
      const int64_t chosen = all[k].item<int64_t>();
      id_TK[row][k] = c.routing == Routing::kNeighbours ? (chosen + row) % c.experts : chosen;
    }
  }
  return {id_TK, at::rand({rows, c.per_token}, at::kDouble)};
}

// Expert e gives (e + 1)·x.
struct Travelled {
  at::Tensor sum_TH;
  at::Tensor visits_TK;  // how often assignments of each row were computed: once
  int64_t waves = 0;
  int64_t most_rows = 0;
  double busiest = 0;
};

// `counted_before`: by another dispatch, as a forward counts for its backward.
Travelled travel(const TravelCase& c, int lane, const Routes& routes, const at::Tensor& x_TH,
                 comm::Communicator& communicator, bool counted_before) {
  LaneChannel channel(communicator);
  std::vector<int> members(c.rows.size());
  std::iota(members.begin(), members.end(), 0);
  const auto dispatcher = [&](TokenDispatcher::Counts known) {
    return TokenDispatcher(channel, {members, c.rows}, {c.lanes(), lane}, c.experts, c.seats(), routes,
                           c.bound, std::move(known));
  };
  const TokenDispatcher way = counted_before ? dispatcher(dispatcher(nullptr).counts()) : dispatcher(nullptr);
  const std::vector<int> seats = c.seats();
  const int64_t first = lane * way.own_expert_slots();
  Travelled outcome{at::zeros_like(x_TH), at::zeros_like(routes.weight_TK), way.dispatch_chunks()};
  way.dispatch_and_combine(
      {x_TH}, {outcome.sum_TH, outcome.visits_TK},
      [&](const std::vector<at::Tensor>& came, const TokenDispatcher::ReceivedRows& coming) {
        const at::Tensor& x_NH = came.front();
        outcome.most_rows = std::max(outcome.most_rows, coming.rows);
        EXPECT_EQ(x_NH.size(0), coming.rows);
        const ops::ExpertAssignments visits = coming.by_expert(way.own_expert_slots());
        EXPECT_EQ(std::ssize(visits.begins), way.own_expert_slots() + 1);
        EXPECT_EQ(visits.begins.back(), coming.assignments);
        at::Tensor sum_NH = at::zeros_like(x_NH), visits_NK = at::zeros_like(coming.weight_NK);
        for (int64_t e = 0; e < way.own_expert_slots(); ++e) {
          const double factor = seats[static_cast<size_t>(first + e)] + 1;
          for (int64_t v = visits.begins[static_cast<size_t>(e)];
               v < visits.begins[static_cast<size_t>(e) + 1]; ++v) {
            const int64_t row = visits.row_V[v].item<int64_t>();
            const int64_t slot = visits.slot_V[v].item<int64_t>();
            const at::Tensor weight = coming.weight_NK.view(-1)[slot];
            sum_NH[row].add_(factor * weight * x_NH[row]);
            visits_NK.view(-1)[slot].add_(1);
          }
        }
        return std::vector{sum_NH, visits_NK};
      });
  const at::Tensor visits_E = at::bincount(routes.id_TK.view(-1), {}, c.experts);
  EXPECT_TRUE(at::equal(at::tensor(way.assignments(), at::kLong), visits_E));
  outcome.busiest = way.load_imbalance();
  return outcome;
}

class ExpertsTravels : public testing::TestWithParam<TravelCase> {};

void expect_all_visits(const TravelCase& c, bool counted_before) {
  at::manual_seed(7);
  std::vector<Routes> routes;
  std::vector<at::Tensor> x_TH;
  for (int lane = 0; lane < c.lanes(); ++lane) {
    routes.push_back(routes_of(c, lane));
    x_TH.push_back(at::randn({c.rows[static_cast<size_t>(lane)], kWidth}, at::kDouble));
  }
  std::vector<Travelled> outcomes(c.rows.size());
  comm::FakeWorld world(c.lanes());
  std::vector<int> members(c.rows.size());
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < c.lanes(); ++lane) {
    threads.emplace_back([&, lane] {
      const auto transport = world.transport(lane);
      const auto lanes = transport->communicator("lanes", members);
      const auto own = static_cast<size_t>(lane);
      outcomes[own] = travel(c, lane, routes[own], x_TH[own], *lanes, counted_before);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t lane = 0; lane < outcomes.size(); ++lane) {
    const Routes& own = routes[lane];
    const at::Tensor factor_T1 = ((own.id_TK + 1) * own.weight_TK).sum(1, /*keepdim=*/true);
    EXPECT_TRUE(at::allclose(outcomes[lane].sum_TH, factor_T1 * x_TH[lane], 1e-13, 1e-13)) << lane;
    EXPECT_TRUE(outcomes[lane].visits_TK.eq(1).all().item<bool>()) << lane;
    EXPECT_EQ(outcomes[lane].waves, outcomes.front().waves);
    if (c.routing == Routing::kOneExpert && !c.placed.empty()) {
      EXPECT_LT(outcomes[lane].busiest, 1.05);
    }
    EXPECT_LE(outcomes[lane].most_rows, c.bound.most);
  }
  const int64_t longest = std::ranges::max(c.rows);
  EXPECT_GE(outcomes.front().waves, longest > 0 ? 1 : 0);
  EXPECT_LE(outcomes.front().waves, (longest + c.bound.run - 1) / c.bound.run);
}

TEST_P(ExpertsTravels, SumsAllVisitsWithinTheBound) { expect_all_visits(GetParam(), false); }
TEST_P(ExpertsTravels, KnownCountsGiveTheSame) { expect_all_visits(GetParam(), true); }

INSTANTIATE_TEST_SUITE_P(
    All, ExpertsTravels,
    testing::Values(
        TravelCase{.rows = {20, 20}}, TravelCase{.rows = {20, 0, 7, 1}},
        TravelCase{.rows = {0, 0, 31, 0}, .routing = Routing::kOneExpert},
        TravelCase{.rows = {40, 40, 40, 40}, .routing = Routing::kOneExpert},
        TravelCase{.rows = {17, 23, 5}, .experts = 12, .routing = Routing::kNeighbours, .bound = {4, 12}},
        TravelCase{.rows = {9, 9, 9, 9, 9, 9, 9, 9}, .per_token = 8, .bound = {1, 8}},
        TravelCase{.rows = {33, 2}, .per_token = 1, .bound = {128, 1024}}, TravelCase{.rows = {0, 0}},
        // Expert slots in another order; and several for some experts, which all rows of every lane choose.
        TravelCase{.rows = {20, 0, 7, 1}, .placed = {3, 6, 0, 7, 1, 4, 2, 5}},
        TravelCase{.rows = {20, 9, 7, 1}, .placed = {0, 3, 6, 0, 1, 7, 1, 4, 7, 2, 3, 5}},
        TravelCase{.rows = {0, 0, 31, 0}, .placed = {0, 3, 6, 0, 1, 7, 1, 4, 7, 2, 3, 5}},
        TravelCase{.rows = {40, 40, 40, 40},
                   .routing = Routing::kOneExpert,
                   .placed = {0, 1, 2, 3, 4, 0, 1, 2, 4, 5, 0, 1, 2, 5, 6, 0, 1, 2, 6, 7}}),
    [](const auto& info) { return base::text("Case", info.index); });

// A chunk takes as many runs as fit; a run alone always travels.
TEST(Waves, AreAsFewAsMayBe) {
  RunCounts counts(2, 4);
  for (int64_t run = 0; run < 4; ++run) counts.at(run, 0, 1) = 3;
  using Waves = std::vector<base::Interval>;
  EXPECT_EQ(dispatch_chunks_of(counts, 12), (Waves{{0, 4}}));
  EXPECT_EQ(dispatch_chunks_of(counts, 6), (Waves{{0, 2}, {2, 4}}));
  EXPECT_EQ(dispatch_chunks_of(counts, 2), (Waves{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  counts.at(1, 1, 1) = 4;  // rows that stay on their lane count, too
  EXPECT_EQ(dispatch_chunks_of(counts, 9), (Waves{{0, 1}, {1, 2}, {2, 4}}));
  EXPECT_EQ(dispatch_chunks_of(counts, 10), (Waves{{0, 2}, {2, 4}}));
  EXPECT_TRUE(dispatch_chunks_of(RunCounts(2, 0), 5).empty());
}

}  // namespace
}  // namespace sluice::layers
