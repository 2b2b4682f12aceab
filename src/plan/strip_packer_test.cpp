#include "plan/strip_packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "model/outline.h"
#include "plan/pack.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"
#include "strategy/pass.h"

namespace sluice::plan {
namespace {

struct Setting {
  strategy::Strategy strategy;
  SchemeCost scheme;

  Setting(const std::string& text, int world_size, const cost::CostModel& cost)
      : strategy(strategy::parse_strategy(text, world_size)),
        scheme(strategy.pipelines[0].scheme, cost, world_size) {}
  std::optional<PackedPipeline> passes_below(const std::vector<int64_t>& lengths, int64_t below_ns) const {
    std::vector<int> members(lengths.size());
    std::iota(members.begin(), members.end(), 0);
    Packing packing(strategy.pipelines[0], scheme, lengths, members, {.below_ns = below_ns});
    std::optional<TimedMicroBatches> packed = pack_strip(packing);
    if (!packed) return std::nullopt;
    return PackedPipeline{packing.timer.plan(std::move(packed->micro_batches)), packed->makespan_ns};
  }
  PackedPipeline passes(const std::vector<int64_t>& lengths) const {
    return *passes_below(lengths, PackOptions{}.below_ns);
  }
};

// 13B on nodes of eight GPUs with fast links inside.
cost::CostModel cost_on_nodes() {
  const cost::Rates rates{.product_flops_per_ns = 150e3,
                          .attention_forward_flops_per_ns = 100e3,
                          .attention_backward_flops_per_ns = 75e3,
                          .elementwise_bytes_per_ns = 1500,
                          .memory_bytes_per_ns = 1500,
                          .layer_overhead_ns = 30e3,
                          .collective = {.bytes_per_ns = 160, .latency_ns = 5e3},
                          .intra_node = {.bytes_per_ns = 160, .latency_ns = 5e3},
                          .inter_node = {.bytes_per_ns = 25, .latency_ns = 10e3}};
  const model::Outline shape{.layers = 40,
                             .hidden = 5120,
                             .heads = 40,
                             .kv_heads = 40,
                             .head_dim = 128,
                             .ffn_hidden = 13'824,
                             .vocab = 32'000};
  const std::vector<int> degrees = {1};
  return cost::CostModel(cost::analytic_options(
      shape, rates, {.device_bytes = int64_t{70} << 30, .element_bytes = 2}, degrees, 8));
}

// Fewer sequences than lanes, of which none fills a lane: cut over as few lanes as end in time alone they
// may leave a seventh of the lanes' time idle.
TEST(PackStrip, FewSequencesOnManySharedLanesEndNearTheEvenLoad) {
  const cost::CostModel cost = cost_on_nodes();
  const Setting setting("<1,1,64,64>", 64, cost);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    base::Rng rng(seed, 9);
    std::vector<int64_t> lengths = {8192};
    for (int64_t tokens = 8192; tokens < 90'000; tokens += lengths.back())
      lengths.push_back(rng.between(500, rng.between(1'000, 8'192)));
    cost::Work work = setting.scheme.work_of(lengths);
    work.tokens /= 64;
    work.squares /= 64;
    const int64_t even_ns = setting.scheme.load_ns(work) + setting.scheme.micro_batch_ns();
    EXPECT_LT(setting.passes(lengths).makespan_ns, even_ns + even_ns / 10) << "seed " << seed;
  }
}

// However many loads are nearly full, the one that takes what is left is found.
TEST(PackStrip, MoreOfTheSameOnAsManyMoreLanesTakesNoLonger) {
  const cost::CostModel cost = cost_on_nodes();
  const Setting few("<1,1,64,64>", 64, cost), many("<1,1,1024,64>", 1024, cost);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    base::Rng rng(seed, 91);
    std::vector<int64_t> lengths, more;
    for (int64_t tokens = 0; tokens < 200'000; tokens += lengths.back())
      lengths.push_back(rng.between(50, rng.between(100, rng.between(200, 32'768))));
    for (int i = 0; i < 16; ++i) more.insert(more.end(), lengths.begin(), lengths.end());
    const int64_t few_ns = few.passes(lengths).makespan_ns;
    EXPECT_LE(many.passes(more).makespan_ns, few_ns + few_ns / 1000) << "seed " << seed;
  }
}

TEST(PackStrip, EverySequenceRunsOnceAndFitsItsLanes) {
  const cost::CostModel cost = test_cost();
  for (const char* text :
       {"<1,1,8>", "<1,1,8,4>", "<2,1,4,2>", "<1,1,6,3>", "<1,2,4>", "<1,4,2>", "<1,2,4,2>"}) {
    const Setting setting(text, 8, cost);
    for (uint64_t seed = 0; seed < 30; ++seed) {
      base::Rng rng(seed, 5);
      std::vector<int64_t> lengths;
      for (int64_t i = rng.between(0, 40); i > 0; --i)
        lengths.push_back(rng.between(1, rng.between(1, setting.scheme.max_len_tokens())));
      const PackedPipeline packed = setting.passes(lengths);
      std::vector<int> seen(lengths.size(), 0);
      for (const strategy::PipelineMicroBatch& micro_batch : packed.plan.micro_batches) {
        EXPECT_LE(micro_batch.tokens(), setting.scheme.lane_max_len_tokens()) << text << " seed " << seed;
        for (const strategy::MicroBatchSequence& of : micro_batch.sequences)
          ++seen[static_cast<size_t>(of.sequence)];
        for (const auto& own : micro_batch.own) {
          for (const strategy::MicroBatchSequence& of : own) ++seen[static_cast<size_t>(of.sequence)];
        }
      }
      EXPECT_EQ(std::ranges::count(seen, 1), std::ssize(seen)) << text << " seed " << seed;
      EXPECT_NO_THROW(strategy::passes(packed.plan)) << text << " seed " << seed;
      const schedule::PipelineLoad load = schedule::pipeline_load(packed.plan, cost, 8);
      EXPECT_EQ(packed.makespan_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
  }
}

TEST(PackStrip, OnlyAPlanBelowTheLimitIsAnAnswer) {
  const cost::CostModel cost = test_cost();
  for (const char* text : {"<1,1,8>", "<1,1,8,4>", "<1,1,8,8>"}) {
    const Setting setting(text, 8, cost);
    const std::vector<int64_t> lengths = {300, 200, 120, 80, 80, 40, 20, 20, 10};
    const int64_t least_ns = setting.passes(lengths).makespan_ns;
    EXPECT_FALSE(setting.passes_below(lengths, least_ns / 2)) << text;
    const auto within = setting.passes_below(lengths, least_ns + least_ns / 8);
    ASSERT_TRUE(within) << text;
    EXPECT_LT(within->makespan_ns, least_ns + least_ns / 8) << text;
  }
}

// A caller that subtracts a step's overhead from "no limit" passes a limit that is only nearly none.
TEST(PackStrip, ALimitMayBeAnyNumber) {
  const cost::CostModel cost = test_cost();
  for (const char* text : {"<1,1,8>", "<1,1,8,4>", "<1,1,8,8>", "<1,2,4>"}) {
    const Setting setting(text, 8, cost);
    const std::vector<int64_t> lengths = {300, 200, 120, 80, 80, 40, 20, 20, 10};
    const auto nearly_none = setting.passes_below(lengths, PackOptions{}.below_ns - 50'000'000);
    ASSERT_TRUE(nearly_none) << text;
    EXPECT_EQ(nearly_none->makespan_ns, setting.passes(lengths).makespan_ns) << text;
  }
}

// On links so slow that a sequence takes a hundred times what all lanes would.
TEST(PackStrip, ASequenceMayKeepFewOfManyLanesBusy) {
  cost::CostModel::Options machine = test_cost().options();
  machine.topology = 1;
  machine.inter.bytes_per_s = 1'000;
  const Setting setting("<1,1,512>", 512, cost::CostModel(machine));
  const std::vector<int64_t> lengths = {setting.scheme.lane_max_len_tokens()};
  // Each of its cells is rounded.
  EXPECT_NEAR(setting.passes(lengths).makespan_ns, setting.scheme.lane_ns(lengths[0], 1), 2);
}

// Cut sequences and whole ones side by side keep every stage busy.
TEST(PackStrip, SeveralStagesAreKeptBusy) {
  const cost::CostModel cost = test_cost();
  const Setting setting("<1,2,4>", 8, cost);
  const std::vector<int64_t> lengths(64, 200);
  const int64_t work_ns = 16 * setting.scheme.load_ns(setting.scheme.work_of(200));
  EXPECT_LE(setting.passes(lengths).makespan_ns, work_ns * 2);
}

// With micro-batches as large as the first the last stage would wait for them, and the first stage for the
// last.
TEST(PackStrip, ManyShortSequencesKeepSeveralStagesBusy) {
  const cost::CostModel cost = test_cost();
  const Setting setting("<1,4,4>", 16, cost);
  std::vector<int64_t> lengths;
  base::Rng rng(1, 52);
  for (int i = 0; i < 2000; ++i) lengths.push_back(rng.between(50, 800));
  const PackedPipeline packed = setting.passes(lengths);
  const int64_t even_ns = setting.scheme.load_ns(setting.scheme.work_of(lengths)) / 4;
  EXPECT_LE(packed.makespan_ns, even_ns + even_ns / 20);
}

// One long sequence takes nearly all of the step on its lanes, so what is short runs on the others.
TEST(PackStrip, ShortWorkKeepsOutOfTheWayOfALongRingThroughStages) {
  const cost::CostModel cost = test_cost();
  const Setting setting("<1,4,8>", 32, cost);
  std::vector<int64_t> lengths(64, 200);
  lengths.push_back(setting.scheme.lane_max_len_tokens() * 2);
  const int64_t alone_ns = setting.passes({lengths.back()}).makespan_ns;
  EXPECT_LE(setting.passes(lengths).makespan_ns, alone_ns + alone_ns / 50);
}

}  // namespace
}  // namespace sluice::plan
