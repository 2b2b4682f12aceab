#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/json.h"
#include "base/rng.h"
#include "model/test_outline.h"
#include "plan/bound.h"
#include "plan/pack.h"
#include "plan/planner.h"
#include "plan/test_models.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using strategy::Scheme;

strategy::Pipeline pipeline_of(const Scheme& scheme) {
  strategy::Pipeline pipeline{.scheme = scheme, .ranks = {}};
  for (int rank = 0; rank < scheme.ranks(); ++rank) pipeline.ranks.push_back(rank);
  return pipeline;
}

std::vector<int64_t> random_lengths(base::Rng& rng, int64_t most, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = rng.between(1, most); i > 0; --i) {
    lengths.push_back(rng.between(2, rng.below(4) == 0 ? longest : std::min<int64_t>(longest, 600)));
  }
  return lengths;
}

PackedPipeline pack_all(const SchemeCost& scheme, const std::vector<int64_t>& lengths) {
  std::vector<int> members(lengths.size());
  std::iota(members.begin(), members.end(), 0);
  return *pack(pipeline_of(scheme.scheme()), scheme, lengths, members);
}

strategy::StepPlan step_plan_of(const PackedPipeline& packed, const std::vector<int64_t>& lengths) {
  strategy::StepPlan plan;
  for (const int64_t length : lengths) plan.sequences.push_back({.length_tokens = length});
  plan.pipelines = {packed.plan};
  return plan;
}

int64_t bound_ns(const SchemeCost& scheme, std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  const std::vector<SchemeGroup> groups = {{&scheme, 1}};
  return lower_bound(lengths, groups)->lower_ns;
}

TEST(Lanes, PlansAreValidScoredByTheirScheduleAndAboveTheBound) {
  const cost::CostModel cost = test_cost();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    base::Rng rng(seed, 21);
    const Scheme scheme{.tp = 1 << rng.below(2),
                        .pp = static_cast<int>(rng.between(1, 3)),
                        .cp = static_cast<int>(rng.between(2, 7))};
    const SchemeCost priced(scheme, cost, scheme.ranks());
    const std::vector<int64_t> lengths =
        random_lengths(rng, 30, std::min<int64_t>(priced.max_len_tokens(), 20'000));
    const PackedPipeline packed = pack_all(priced, lengths);
    ASSERT_NO_THROW(strategy::validate(step_plan_of(packed, lengths), scheme.ranks())) << "seed " << seed;
    const schedule::PipelineLoad load = schedule::pipeline_load(packed.plan, cost, scheme.ranks());
    ASSERT_EQ(packed.makespan_ns, schedule::schedule_pipeline(load).makespan_ns) << "seed " << seed;
    ASSERT_GE(packed.makespan_ns, bound_ns(priced, lengths)) << "seed " << seed;
  }
}

// By set of sequences, the least time of two lanes that run them in rings, of which each takes as many as its
// lanes hold.
std::vector<int64_t> least_in_rings(const SchemeCost& scheme, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> least_ns(size_t{1} << lengths.size(), 0);
  for (size_t set = 1; set < least_ns.size(); ++set) {
    least_ns[set] = std::numeric_limits<int64_t>::max();
    for (size_t ring = set; ring > 0; ring = (ring - 1) & set) {
      cost::Work work;
      for (size_t i = 0; i < lengths.size(); ++i) {
        if (ring >> i & 1) work += SchemeCost::fullest_share(lengths[i], 2);
      }
      if (work.tokens > scheme.lane_max_len_tokens() + 2) continue;
      least_ns[set] = std::min(least_ns[set], scheme.micro_batch_work_ns(work, 2) + least_ns[set ^ ring]);
    }
  }
  return least_ns;
}

// Two lanes and one stage: rings take both, so a plan takes their times and then the longer of what the lanes
// have of their own. Micro-batches are counted as if tokens filled them.
int64_t least_on_two_lanes(const SchemeCost& scheme, const std::vector<int64_t>& lengths) {
  const std::vector<int64_t> rings_ns = least_in_rings(scheme, lengths);
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  int cases = 1;
  for (size_t i = 0; i < lengths.size(); ++i) cases *= 3;
  for (int choice = 0; choice < cases; ++choice) {
    size_t in_rings = 0;
    int64_t own_ns[2] = {0, 0};
    int64_t tokens[2] = {0, 0};
    bool fits = true;
    int rest = choice;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t length = lengths[i];
      const int lane = rest % 3;
      rest /= 3;
      if (lane == 2) {
        in_rings |= size_t{1} << i;
        continue;
      }
      fits = fits && length <= scheme.lane_max_len_tokens();
      own_ns[lane] += scheme.lane_ns(length, 1) - scheme.micro_batch_ns();
      tokens[lane] += length;
    }
    const int64_t most = scheme.lane_max_len_tokens();
    for (const int lane : {0, 1}) own_ns[lane] += (tokens[lane] + most - 1) / most * scheme.micro_batch_ns();
    if (fits) best_ns = std::min(best_ns, rings_ns[in_rings] + std::max(own_ns[0], own_ns[1]));
  }
  return best_ns;
}

TEST(Lanes, StaysBetweenTheBoundAndBruteForce) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme({.cp = 2}, cost, 2);
  int64_t ours_ns = 0;
  int64_t least_ns = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    base::Rng rng(seed, 22);
    const std::vector<int64_t> lengths = random_lengths(rng, 6, scheme.max_len_tokens());
    const int64_t least = least_on_two_lanes(scheme, lengths);
    ASSERT_LE(bound_ns(scheme, lengths), least + 50) << "seed " << seed;
    const int64_t ours = pack_all(scheme, lengths).makespan_ns;
    // lane_ns counts up to a token of each sequence more, with its share of the ring's.
    const int64_t token_ns = 2 * (scheme.lane_ns(3, 1) - scheme.lane_ns(2, 1));
    ASSERT_GE(ours + static_cast<int64_t>(lengths.size()) * token_ns, least) << "seed " << seed;
    ours_ns += ours;
    least_ns += least;
  }
  EXPECT_LE(ours_ns, least_ns * 105 / 100);
}

// Nodes of two GPUs, and links slow enough that most rings wait for them.
cost::CostModel slow_links(base::Rng& rng) {
  const double bytes_per_ns = static_cast<double>(rng.between(1, 40)) / 100;
  const cost::Rates rates{.intra_node = {.bytes_per_ns = 4 * bytes_per_ns, .latency_ns = 5e3},
                          .inter_node = {.bytes_per_ns = bytes_per_ns, .latency_ns = 10e3}};
  const std::vector<int> degrees = {1};
  return cost::CostModel(
      cost::analytic_options(model::test_outline(), rates, {.device_bytes = 128'000'000}, degrees, 2));
}

// Sequences one after the other join a micro-batch that is there or begin one, on any run of lanes that holds
// them.
std::vector<strategy::PipelineMicroBatch> random_micro_batches(base::Rng& rng, const SchemeCost& scheme,
                                                               const std::vector<int64_t>& lengths) {
  const int lanes = scheme.scheme().cp;
  std::vector<strategy::PipelineMicroBatch> micro_batches;
  for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
    const int64_t length = lengths[static_cast<size_t>(s)];
    const auto most = static_cast<int>(std::min<int64_t>(lanes, std::max<int64_t>(1, length / 2)));
    const auto count = static_cast<int>(rng.between(scheme.fewest_lanes(length), most));
    const auto joins = [&](const strategy::PipelineMicroBatch& micro_batch) {
      if (micro_batch.lanes != count) return false;
      int64_t tokens = SchemeCost::fullest_share(length, count).tokens;
      for (const strategy::MicroBatchSequence& other : micro_batch.sequences)
        tokens += SchemeCost::fullest_share(other.length_tokens, count).tokens;
      return tokens <= scheme.lane_max_len_tokens();
    };
    const auto micro_batch = std::ranges::find_if(micro_batches, joins);
    if (micro_batch != micro_batches.end() && rng.below(4) > 0) {
      micro_batch->sequences.push_back({s, length});
    } else {
      micro_batches.push_back({.first_lane = static_cast<int>(rng.between(0, lanes - count)),
                               .lanes = count,
                               .sequences = {{s, length}}});
    }
  }
  return strategy::in_injection_order(std::move(micro_batches), lanes);
}

TEST(Lanes, NothingBeatsTheBoundWhereRingsExposeTransfers) {
  int by_rings = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    base::Rng rng(seed, 24);
    const cost::CostModel cost = slow_links(rng);
    const SchemeCost scheme({.pp = static_cast<int>(rng.between(1, 2)), .cp = 6}, cost, 12);
    const std::vector<int64_t> lengths =
        random_lengths(rng, 12, std::min<int64_t>(scheme.max_len_tokens(), 20'000));
    std::vector<int64_t> sorted = lengths;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const std::vector<SchemeGroup> groups = {{&scheme, 1}};
    const Bound bound = *lower_bound(sorted, groups);
    by_rings += bound.proof == Proof::kRings ? 1 : 0;
    ASSERT_GE(pack_all(scheme, lengths).makespan_ns, bound.lower_ns) << "seed " << seed;
    const strategy::Pipeline pipeline = pipeline_of(scheme.scheme());
    MicroBatchTimer timer(pipeline, scheme);
    for (int i = 0; i < 20; ++i)
      ASSERT_GE(timer.makespan_ns(random_micro_batches(rng, scheme, lengths)), bound.lower_ns)
          << "seed " << seed;
  }
  EXPECT_GT(by_rings, 10);
}

// Keys that lie before or at each of the lane's queries, and its tokens.
std::pair<int64_t, int64_t> attention_of(int64_t length, int lanes, int lane) {
  int64_t pairs = 0;
  int64_t tokens = 0;
  for (const strategy::Piece& scheduled : strategy::lane_pieces({0, length}, lanes, lane)) {
    pairs += (scheduled.begin + 1 + scheduled.end) * scheduled.tokens() / 2;
    tokens += scheduled.tokens();
  }
  return {pairs, tokens};
}

TEST(Lanes, ShareARingsWorkWithinAHundredth) {
  base::Rng rng(7, 25);
  for (int i = 0; i < 500; ++i) {
    const auto lanes = static_cast<int>(rng.between(2, 64));
    const int64_t length = rng.between(1024 * lanes, 4096 * lanes);
    int64_t most[2] = {0, 0};
    int64_t sum[2] = {0, 0};
    for (int lane = 0; lane < lanes; ++lane) {
      const auto [pairs, tokens] = attention_of(length, lanes, lane);
      most[0] = std::max(most[0], pairs);
      most[1] = std::max(most[1], tokens);
      sum[0] += pairs;
      sum[1] += tokens;
    }
    EXPECT_EQ(sum[0], length * (length + 1) / 2);
    for (const int what : {0, 1}) {
      EXPECT_LE(most[what] * lanes * 100, sum[what] * 101) << length << " tokens on " << lanes << " lanes";
    }
  }
}

TEST(Lanes, HoldWhatTheirChunksHold) {
  const cost::CostModel cost = test_cost();
  for (const int cp : {2, 3, 5}) {
    const SchemeCost scheme({.cp = cp}, cost, cp);
    const int64_t longest = scheme.max_len_tokens();
    EXPECT_EQ(longest, scheme.lane_max_len_tokens() / 2 * 2 * cp);
    EXPECT_EQ(scheme.fewest_lanes(scheme.lane_max_len_tokens()), 1);
    EXPECT_EQ(scheme.fewest_lanes(longest), cp);
    const PackedPipeline packed = pack_all(scheme, {longest});
    EXPECT_NO_THROW(strategy::validate(step_plan_of(packed, {longest}), cp));
    ASSERT_EQ(packed.plan.micro_batches.size(), 1u);
    EXPECT_EQ(packed.plan.micro_batches[0].lanes, cp);
  }
}

TEST(Lanes, ShortSequencesShareNothing) {
  const cost::CostModel cost = test_cost();
  const SchemeCost scheme({.cp = 4}, cost, 4);
  const PackedPipeline packed = pack_all(scheme, std::vector<int64_t>(32, 100));
  std::vector<int64_t> tokens(4, 0);
  for (const strategy::PipelineMicroBatch& micro_batch : packed.plan.micro_batches) {
    EXPECT_EQ(micro_batch.lanes, 1);
    tokens[static_cast<size_t>(micro_batch.first_lane)] += micro_batch.tokens();
  }
  EXPECT_EQ(tokens, (std::vector<int64_t>(4, 800)));
}

TEST(Lanes, PipelineWithoutSequencesIsEmpty) {
  const cost::CostModel cost = test_cost();
  for (const int pp : {1, 2}) {
    const SchemeCost scheme({.pp = pp, .cp = 3}, cost, 6);
    const PackedPipeline packed = pack_all(scheme, {});
    EXPECT_EQ(packed.makespan_ns, 0);
    EXPECT_TRUE(packed.plan.micro_batches.empty());
  }
}

TEST(Lanes, PlansWithRingsRoundTripThroughJson) {
  PlannerOptions options{.world_size = 8};
  for (const char* text : {"<1,1,5> + <1,1,3>", "<1,2,2> + <2,1,2>", "<1,1,8>"}) {
    options.candidates.push_back(strategy::parse_strategy(text, 8));
  }
  const Planner planner(options, test_cost());
  int rings = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    base::Rng rng(seed, 23);
    std::vector<strategy::Sequence> sequences;
    for (const int64_t length :
         random_lengths(rng, 40, std::min<int64_t>(planner.max_len_tokens(), 30'000))) {
      sequences.push_back({.document = static_cast<int64_t>(sequences.size()), .length_tokens = length});
    }
    const strategy::StepPlan plan = planner.plan(static_cast<int64_t>(seed), sequences);
    EXPECT_GE(plan.estimated_ns, plan.lower_bound_ns);
    const strategy::StepPlan read = strategy::step_plan_from_json(strategy::to_json(plan), 8, "plan.json");
    EXPECT_EQ(strategy::canonical_bytes(read), strategy::canonical_bytes(plan));
    for (const auto& pipeline : plan.pipelines) {
      for (const strategy::PipelineMicroBatch& micro_batch : pipeline.micro_batches)
        rings += micro_batch.lanes > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(rings, 0);
}

}  // namespace
}  // namespace sluice::plan
