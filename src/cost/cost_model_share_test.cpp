#include <gtest/gtest.h>

#include "base/rng.h"
#include "cost/cost_model.h"
#include "cost/parameter_counts.h"
#include "cost/test_model.h"

namespace sluice::cost {
namespace {

using strategy::Scheme;

CostModel::Options options_of(bool tied = false) {
  CostModel::Options options = tiny_options(tied);
  options.kinds_by_tp[2] = options.kinds_by_tp[1];
  options.memory = {.device_bytes = 10'000'000,
                    .element_bytes = 2,
                    .accumulator_bytes = 4,
                    .owner_bytes_per_parameter = 16};
  options.gpus_per_nic = 2;
  return options;
}
CostModel model(bool tied = false) { return CostModel(options_of(tied)); }

// Gradients travel in half the bytes.
CostModel narrow_model() {
  CostModel::Options options = options_of();
  options.memory.reduce_bytes = 2;
  return CostModel(options);
}

// Elements of an operation: the embedding's 0, a layer's 1, the head's 6.
int64_t elements(const CostModel& cost, int64_t position) {
  return bucket_elements(cost.program(), cost.options().memory, position, 1);
}

// By kind: embedding, layers, head.
enum Kind : size_t { kEmbedding, kLayer, kHead };

TEST(ShareTimes, AreThoseOfTheLinksThatTheBytesCross) {
  const CostModel cost = model();
  const Scheme scheme{.cp = 8, .share = 4};
  const int64_t part = (elements(cost, 1) + 3) / 4;
  const CostModel::ShareTimes inside = cost.share_times(scheme, 4)[kLayer];
  EXPECT_EQ(inside.gather_ns, 10 + 3 * part * 2);
  EXPECT_EQ(inside.scatter_ns, 10 + 3 * part * 4);
  // Two lanes of each node, which share an adapter: it takes two parts in for both, and sends two for each.
  const CostModel::ShareTimes between = cost.share_times(scheme, 2)[kLayer];
  EXPECT_EQ(between.gather_ns, 100 + 2 * part * 2 * 2);
  EXPECT_EQ(between.scatter_ns, 100 + 2 * 2 * part * 4 * 2);
  EXPECT_EQ(cost.share_times({.cp = 8}, 1)[kLayer], CostModel::ShareTimes{});
  const CostModel::ShareTimes narrow = narrow_model().share_times(scheme, 4)[kLayer];
  EXPECT_EQ(narrow.gather_ns, inside.gather_ns);
  EXPECT_EQ(narrow.scatter_ns, 10 + 3 * part * 2);
}

TEST(ShareTimes, RivalsMaySumInRingsKeepWhatTheyGatheredOrTakeWhatWasMeasured) {
  const Scheme scheme{.cp = 8, .share = 4};
  CostModel::Options options = model().options();
  options.share_traits.sums_in_ring = true;
  const int64_t part = (elements(model(), 1) + 3) / 4;
  EXPECT_EQ(CostModel(options).share_times(scheme, 2)[kLayer].scatter_ns, 100 + 2 * part * 4 * 2);
  options.share_traits.keeps_gathered = true;
  EXPECT_EQ(CostModel(options).share_times(scheme, 2)[kLayer].gather_ns, 0);
  EXPECT_GT(CostModel(options).fixed_bytes(scheme, 8), model().fixed_bytes(scheme, 8));
  const CostModel plain(options);
  options.share_traits.pass_ns = 5000;
  const base::Interval run = plain.stage_run(scheme, 0);
  const auto backward_ns = [&](const CostModel& cost, int lanes_in_node) {
    return cost.pass_cell_ns(CellKind::kBackward, run, scheme, cost.share_times(scheme, lanes_in_node),
                             {100, 100}, 9000);
  };
  EXPECT_EQ(backward_ns(CostModel(options), 2), backward_ns(plain, 2) + 5000) << "once a pass between nodes";
  EXPECT_EQ(backward_ns(CostModel(options), 4), backward_ns(plain, 4)) << "and none inside one";
}

TEST(ShareTimes, ATiedHeadMovesTheEmbeddingToo) {
  const CostModel apart = model(), tied = model(true);
  const Scheme scheme{.cp = 2, .share = 2};
  const auto gather_ns = [&](const CostModel& cost, Kind kind) {
    return cost.share_times(scheme, 2)[kind].gather_ns;
  };
  EXPECT_EQ(gather_ns(tied, kEmbedding), gather_ns(apart, kEmbedding));
  EXPECT_GT(gather_ns(tied, kHead), gather_ns(tied, kEmbedding));
}

TEST(PassCell, WithoutSharingTakesWhatItsSlowestLaneComputes) {
  const CostModel cost = model();
  base::Rng rng(4);
  for (int round = 0; round < 200; ++round) {
    const Work work{.tokens = rng.between(0, 5000), .squares = rng.between(0, 1 << 22)};
    for (const CellKind kind :
         {CellKind::kForward, CellKind::kBackward, CellKind::kBackwardInput, CellKind::kBackwardWeight}) {
      for (const Scheme& scheme : {Scheme{.cp = 4}, Scheme{.tp = 2, .pp = 2}}) {
        for (int stage = 0; stage < scheme.pp; ++stage) {
          const base::Interval run = cost.stage_run(scheme, stage);
          const int64_t compute_ns = cost.cell_ns(scheme, kind, run, work) + rng.between(0, 1000);
          EXPECT_EQ(cost.pass_cell_ns(kind, run, scheme, cost.share_times(scheme, 1), work, compute_ns),
                    compute_ns);
        }
      }
    }
  }
}

// The last stage's backward has its first operation at hand.
TEST(PassCell, GathersFirstAndSumsLastWhereComputingHidesTheRest) {
  const CostModel cost = model();
  const Work work{100'000, 0};
  const auto exposed_ns = [&](CellKind kind, const Scheme& scheme, int stage) {
    const base::Interval run = cost.stage_run(scheme, stage);
    const int64_t compute_ns = cost.cell_ns(scheme, kind, run, work);
    return cost.pass_cell_ns(kind, run, scheme, cost.share_times(scheme, 2), work, compute_ns) - compute_ns;
  };
  const Scheme one{.cp = 2, .share = 2}, two{.pp = 2, .cp = 2, .share = 2};
  const std::vector<CostModel::ShareTimes> share = cost.share_times(one, 2);
  EXPECT_EQ(exposed_ns(CellKind::kForward, one, 0), share[kEmbedding].gather_ns + share[kHead].scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackward, one, 0), share[kEmbedding].scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kForward, two, 1), share[kLayer].gather_ns + share[kHead].scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackward, two, 1), share[kLayer].scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackward, two, 0), share[kLayer].gather_ns + share[kEmbedding].scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackwardInput, two, 0),
            share[kLayer].gather_ns + share[kEmbedding].scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackwardInput, two, 1), 0);
  EXPECT_EQ(exposed_ns(CellKind::kBackwardWeight, two, 0), share[kLayer].scatter_ns);
}

TEST(Window, HoldsTwoGatheredOperationsAndTheGradientsOfTwo) {
  const CostModel cost = model();
  const int64_t layer = elements(cost, 1), head = elements(cost, 6);
  const Scheme scheme{.cp = 2, .share = 2};
  const base::Interval part = cost.stage_run(scheme, 0);
  EXPECT_EQ(cost.window_bytes(scheme, CellKind::kBackward, part), layer * (2 * 2 + 3 * 4));
  EXPECT_EQ(cost.window_bytes(scheme, CellKind::kBackwardInput, part), layer * (2 * 2 + 4));
  EXPECT_EQ(cost.window_bytes(scheme, CellKind::kBackwardWeight, part), layer * 3 * 4);
  // The last layer is still there beside the head and its gradients.
  EXPECT_EQ(cost.window_bytes(scheme, CellKind::kForward, part),
            std::max(2 * layer * 2, layer * 2 + head * 2 * 4));
  EXPECT_EQ(cost.window_bytes({.cp = 2}, CellKind::kBackward, part), 0);
  EXPECT_EQ(narrow_model().window_bytes(scheme, CellKind::kBackward, part), layer * (2 * 2 + 4 + 2 * 2));
}

// Parameters and accumulators fall to a half; what is at work comes on top.
TEST(FixedBytes, SharedParametersWeighAPartAndTheWindow) {
  const CostModel cost = model();
  const MemoryModel& memory = cost.options().memory;
  const auto half = [&](int64_t position) { return (elements(cost, position) + 1) / 2; };
  const int64_t held = half(0) + 5 * half(1) + half(6);
  const int64_t owned = (all_parameters(cost.program(), memory) + 3) / 4 * memory.owner_bytes_per_parameter;
  const Scheme scheme{.cp = 4, .share = 2};
  EXPECT_EQ(cost.fixed_bytes(scheme, 4),
            held * 6 + owned + cost.window_bytes(scheme, CellKind::kBackward, cost.stage_run(scheme, 0)));
}

}  // namespace
}  // namespace sluice::cost
