#include "cost/fsdp_cost.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/rng.h"
#include "cost/cost_model.h"
#include "cost/link_buffers.h"
#include "cost/memory_cost.h"
#include "cost/parameter_counts.h"
#include "cost/test_model.h"
#include "model/test_outline.h"

namespace sluice::cost {
namespace {

using strategy::Scheme;

CostModel::Options fsdp_options(bool tied = false) {
  CostModel::Options options = tiny_options(tied);
  options.kinds_by_tp[2] = options.kinds_by_tp[1];
  options.memory = {.device_bytes = 10'000'000,
                    .element_bytes = 2,
                    .accumulator_bytes = 4,
                    .owner_bytes_per_parameter = 16};
  options.topology = {8, 2};
  return options;
}
CostModel model(bool tied = false) { return CostModel(fsdp_options(tied)); }

// Gradients travel in half the bytes.
CostModel narrow_model() {
  CostModel::Options options = fsdp_options();
  options.codecs.sums = {strategy::Codec::kBFloat16, strategy::Codec::kBFloat16};
  return CostModel(options);
}

// Operations of the program.
constexpr int64_t kEmbedding = 0, kLayer = 1, kHead = 6;

int64_t elements(const CostModel& cost, int64_t position) {
  return bucket_elements(cost.program(), cost.options().memory, static_cast<int>(position), 1);
}

TEST(FsdpTimes, AreThoseOfTheLinksThatTheBytesCross) {
  const CostModel cost = model();
  const Scheme scheme{.cp = 8, .fsdp = 4};
  const int64_t part = (elements(cost, kLayer) + 3) / 4;
  const FsdpTimes inside = FsdpCost(cost, scheme, {4, 4}).at(kLayer);
  EXPECT_EQ(inside.gather_ns, 10 + 3 * part * 2);
  EXPECT_EQ(inside.scatter_ns, 10 + 3 * part * 4);
  EXPECT_EQ(inside.between_ns, 0);
  // Two lanes of each node, which share an adapter: it takes two parts in for both. In a run each lane sends
  // the other one its part for each run; between runs the adapter sends a part for each lane.
  const FsdpTimes between = FsdpCost(cost, scheme, {2, 2}).at(kLayer);
  EXPECT_EQ(between.gather_ns, 100 + 2 * part * 2 * 2);
  EXPECT_EQ(between.scatter_ns, 10 + 2 * part * 4);
  EXPECT_EQ(between.between_ns, 100 + 2 * part * 4 * 2);
  // Lanes that lie otherwise send their parts straight: two for each of the adapter's lanes.
  const FsdpTimes straight = FsdpCost(cost, scheme, {2, 1}).at(kLayer);
  EXPECT_EQ(straight.scatter_ns, 100 + 2 * 2 * part * 4 * 2);
  EXPECT_EQ(straight.between_ns, 0);
  EXPECT_EQ(FsdpCost(cost, {.cp = 8}, {1, 1}).at(kLayer), FsdpTimes{});
  const FsdpTimes narrow = FsdpCost(narrow_model(), scheme, {4, 4}).at(kLayer);
  EXPECT_EQ(narrow.gather_ns, inside.gather_ns);
  EXPECT_EQ(narrow.scatter_ns, 10 + 3 * part * 2);
}

struct SumsInRings : Execution {
  bool sums_in_runs() const override { return false; }
};
struct KeepsGathered : SumsInRings {
  bool gathers_in_passes() const override { return false; }
};

TEST(FsdpTimes, AreThoseOfTheExecutionAndOfMeasuredPasses) {
  const Scheme scheme{.cp = 8, .fsdp = 4};
  CostModel::Options options = model().options();
  options.execution = std::make_shared<SumsInRings>();
  const int64_t part = (elements(model(), kLayer) + 3) / 4;
  EXPECT_EQ(FsdpCost(CostModel(options), scheme, {2, 2}).at(kLayer).scatter_ns, 100 + 2 * part * 4 * 2);
  EXPECT_EQ(FsdpCost(CostModel(options), scheme, {2, 2}).at(kLayer).between_ns, 0);
  options.execution = std::make_shared<KeepsGathered>();
  EXPECT_EQ(FsdpCost(CostModel(options), scheme, {2, 2}).at(kLayer).gather_ns, 0);
  EXPECT_GT(MemoryCost(CostModel(options), scheme).fixed_bytes(8),
            MemoryCost(model(), scheme).fixed_bytes(8));
  const CostModel plain(options);
  options.measured_pass_ns = 5000;
  const base::Interval run = plain.stage_run(scheme, 0);
  const auto backward_ns = [&](const CostModel& cost, int lanes_in_node) {
    return FsdpCost(cost, scheme, {lanes_in_node, lanes_in_node})
        .cell_ns(CellKind::kBackward, run, {100, 100}, 9000);
  };
  EXPECT_EQ(backward_ns(CostModel(options), 2), backward_ns(plain, 2) + 5000) << "once a pass between nodes";
  EXPECT_EQ(backward_ns(CostModel(options), 4), backward_ns(plain, 4)) << "and none inside one";
}

TEST(FsdpTimes, ATiedHeadMovesTheEmbeddingToo) {
  const CostModel apart = model(), tied = model(true);
  const Scheme scheme{.cp = 2, .fsdp = 2};
  const auto gather_ns = [&](const CostModel& cost, int64_t position) {
    return FsdpCost(cost, scheme, {2, 2}).at(position).gather_ns;
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
          EXPECT_EQ(FsdpCost(cost, scheme, {1, 1}).cell_ns(kind, run, work, compute_ns), compute_ns);
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
    return FsdpCost(cost, scheme, {2, 2}).cell_ns(kind, run, work, compute_ns) - compute_ns;
  };
  const Scheme one{.cp = 2, .fsdp = 2}, two{.pp = 2, .cp = 2, .fsdp = 2};
  const FsdpCost share(cost, one, {2, 2});
  EXPECT_EQ(exposed_ns(CellKind::kForward, one, 0),
            share.at(kEmbedding).gather_ns + share.at(kHead).scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackward, one, 0), share.at(kEmbedding).scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kForward, two, 1), share.at(kLayer).gather_ns + share.at(kHead).scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackward, two, 1), share.at(kLayer).scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackward, two, 0),
            share.at(kLayer).gather_ns + share.at(kEmbedding).scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackwardInput, two, 0),
            share.at(kLayer).gather_ns + share.at(kEmbedding).scatter_ns);
  EXPECT_EQ(exposed_ns(CellKind::kBackwardInput, two, 1), 0);
  EXPECT_EQ(exposed_ns(CellKind::kBackwardWeight, two, 0), share.at(kLayer).scatter_ns);
}

// A piece's sums between runs beside the next one's in runs.
TEST(PassCell, SumsItsLastOperationInPiecesWhereTheseAreLarge) {
  CostModel::Options options = fsdp_options();
  options.model = model::changed(options.model, [](model::Outline& outline) { outline.vocab = 65'536; });
  Scheme scheme{.cp = 8, .fsdp = 4};
  const Work work{10'000'000, 0};
  const auto exposed_ns = [&] {
    const CostModel cost(options);
    const base::Interval run = cost.stage_run(scheme, 0);
    const int64_t compute_ns = cost.cell_ns(scheme, CellKind::kBackward, run, work);
    return FsdpCost(cost, scheme, {2, 2}).cell_ns(CellKind::kBackward, run, work, compute_ns) - compute_ns;
  };
  const int64_t part = divide_up(elements(CostModel(options), kEmbedding), 4);
  const int64_t pieces = last_pieces({}, part);
  ASSERT_GT(pieces, 1);
  const int64_t scatter_ns = 10 + 2 * divide_up(part, pieces) * 4;
  const int64_t between_ns = 100 + 2 * divide_up(part, pieces) * 4 * 2;
  const int64_t in_pieces_ns = scatter_ns + (pieces - 1) * std::max(scatter_ns, between_ns) + between_ns;
  EXPECT_EQ(exposed_ns(), in_pieces_ns);
  scheme.ep = 2;
  EXPECT_EQ(exposed_ns(), in_pieces_ns) << "the embedding has no experts";
  scheme.ep = 1;
  options.codecs.sums = {strategy::Codec::kBFloat16, strategy::Codec::kBFloat16};
  EXPECT_EQ(exposed_ns(), 10 + 2 * part * 2 + 100 + 2 * part * 2 * 2) << "whole";
  EXPECT_EQ(last_pieces({}, 1000), 1);
}

TEST(GatheredBytes, HoldTwoGatheredOperationsAndTheGradientsOfTwo) {
  const CostModel cost = model();
  const int64_t layer = elements(cost, kLayer), head = elements(cost, kHead);
  const Scheme scheme{.cp = 2, .fsdp = 2};
  const base::Interval part = cost.stage_run(scheme, 0);
  // A lane sends a half of the gradients that are summed, and receives as many.
  const int64_t sums = layer * 4 + (layer + layer / 2) * 4;
  EXPECT_EQ(MemoryCost(cost, scheme).gathered_bytes(CellKind::kBackward, part), layer * 2 * 2 + sums);
  EXPECT_EQ(MemoryCost(cost, scheme).gathered_bytes(CellKind::kBackwardInput, part), layer * (2 * 2 + 4));
  EXPECT_EQ(MemoryCost(cost, scheme).gathered_bytes(CellKind::kBackwardWeight, part), sums);
  // The last layer is still there beside the head and its gradients.
  EXPECT_EQ(MemoryCost(cost, scheme).gathered_bytes(CellKind::kForward, part),
            std::max(2 * layer * 2, layer * 2 + head * 2 * 4));
  EXPECT_EQ(MemoryCost(cost, {.cp = 2}).gathered_bytes(CellKind::kBackward, part), 0);
  // Coded both ways; and of two lanes' gradients the own half as it is, and half of them read again.
  const auto narrow = static_cast<double>(layer * (2 * 2 + 4 + 2 + 4));
  EXPECT_NEAR(
      static_cast<double>(MemoryCost(narrow_model(), scheme).gathered_bytes(CellKind::kBackward, part)),
      narrow, 0.01 * narrow);
}

// In runs of two lanes a lane receives a half, not three quarters. A half of the sums before is between
// nodes: a quarter comes, and stays.
TEST(GatheredBytes, HoldTheSumsOfRunsBesides) {
  const CostModel cost = model();
  CostModel::Options options = cost.options();
  options.topology = 2;
  const CostModel in_runs(options);
  const Scheme scheme{.cp = 4, .fsdp = 4};
  const base::Interval part = cost.stage_run(scheme, 0);
  const int64_t layer = elements(cost, kLayer);
  EXPECT_EQ(MemoryCost(in_runs, scheme).gathered_bytes(CellKind::kBackwardWeight, part),
            MemoryCost(cost, scheme).gathered_bytes(CellKind::kBackwardWeight, part) - layer / 4 * 4 +
                (layer / 2 + layer / 4) * 4 + layer / 4 * 4);
}

// Parameters and accumulators fall to a half; what is at work, copies and buffers come on top.
TEST(FixedBytes, SharedParametersWeighAPartAndTheWindow) {
  const CostModel cost = model();
  const MemoryModel& memory = cost.options().memory;
  const auto half = [&](int64_t position) { return (elements(cost, position) + 1) / 2; };
  const int64_t held = half(0) + 5 * half(1) + half(6);
  const int64_t owned = (all_parameters(cost.program(), memory).all + 3) / 4;
  const Scheme scheme{.cp = 4, .fsdp = 2};
  // Five blocks in three rounds, an end with one of them.
  const int64_t moved = (5 * half(1) + 2) / 3 + std::max(half(0), half(6));
  LinkBuffers buffers(memory, cost.options().codecs.pull, cost.options().codecs.push.in_node, 4);
  buffers.add_round({moved, moved, moved, moved}, link_pieces(moved));
  EXPECT_EQ(MemoryCost(cost, scheme).fixed_bytes(4),
            with_small_tensors(
                held * 6 + owned * memory.owner_bytes_per_parameter + narrow_copies_bytes(memory, owned) +
                buffers.bytes() +
                MemoryCost(cost, scheme).gathered_bytes(CellKind::kBackward, cost.stage_run(scheme, 0))));
}

}  // namespace
}  // namespace sluice::cost
