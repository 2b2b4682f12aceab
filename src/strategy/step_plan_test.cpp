#include "strategy/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::Json;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kWorldSize = 8;

// Sequence 0 on a ring over lanes 1 and 2 of pipeline 0, the others whole.
StepPlan example_plan() {
  StepPlan plan;
  plan.step = 7;
  plan.sequences = {{.document = 11, .begin_token = 0, .length_tokens = 10},
                    {.document = 5, .begin_token = 64, .length_tokens = 6},
                    {.document = 9, .begin_token = 0, .length_tokens = 4},
                    {.document = 2, .begin_token = 0, .length_tokens = 3}};
  const Strategy strategy = parse_strategy("<1,1,3> + <2,1,1>", kWorldSize);
  const std::vector<MicroBatch> ring = ring_micro_batches(plan.sequences, {0}, 2, 4);
  plan.pipelines.push_back(
      {.pipeline = strategy.pipelines[0],
       .max_len_tokens = 8,
       .lanes = {{{.ring = std::nullopt, .pieces = {{1, 0, 6}}}}, {ring[0]}, {ring[1]}}});
  plan.pipelines.push_back({.pipeline = strategy.pipelines[1],
                            .max_len_tokens = 7,
                            .lanes = {{{.ring = std::nullopt, .pieces = {{3, 0, 3}, {2, 0, 4}}}}}});
  plan.estimated_ns = 1100;
  plan.lower_bound_ns = 1000;
  plan.planning_ns = 77;
  plan.candidates = {{.strategy = "<1,1,3> + <2,1,1>", .estimated_ns = 1100}};
  return plan;
}

MicroBatch& micro_batch(StepPlan& plan, size_t pipeline, size_t lane, size_t index = 0) {
  return plan.pipelines[pipeline].lanes[lane][index];
}

TEST(StepPlan, CountsTokensTargetsAndGap) {
  const StepPlan plan = example_plan();
  EXPECT_EQ(plan.tokens(), 23);
  EXPECT_EQ(plan.targets(), 19);
  EXPECT_EQ(plan.gap_ppm(), 100'000);
  EXPECT_EQ(plan.pipelines[1].lanes[0][0].tokens(), 7);
  EXPECT_EQ(to_text(plan.strategy()), "1x<1,1,3> + 1x<2,1,1>");
}

TEST(StepPlan, GapIsZeroWithoutBoundAndNeverOverflows) {
  StepPlan plan;
  plan.estimated_ns = INT64_MAX;
  EXPECT_EQ(plan.gap_ppm(), 0);
  plan.lower_bound_ns = 1;
  EXPECT_EQ(plan.gap_ppm(), INT64_MAX);
}

TEST(CausalChunk, ChunksCoverTheSequenceAndDifferByAtMostOne) {
  for (int64_t length = 1; length < 40; ++length) {
    for (int lanes = 1; lanes <= 6; ++lanes) {
      int64_t next = 0;
      for (int chunk = 0; chunk < 2 * lanes; ++chunk) {
        const base::Interval tokens = causal_chunk(length, lanes, chunk);
        EXPECT_EQ(tokens.begin, next);
        EXPECT_GE(tokens.end - tokens.begin, length / (2 * lanes));
        EXPECT_LE(tokens.end - tokens.begin, length / (2 * lanes) + 1);
        next = tokens.end;
      }
      EXPECT_EQ(next, length);
    }
  }
}

TEST(RingMicroBatches, LaneHoldsAChunkFromEachEnd) {
  const std::vector<Sequence> sequences = {{.length_tokens = 8}, {.length_tokens = 16}};
  const std::vector<MicroBatch> ring = ring_micro_batches(sequences, {1, 0}, 2, 3);
  ASSERT_EQ(ring.size(), 2u);
  EXPECT_EQ(ring[0], (MicroBatch{3, {{1, 0, 4}, {1, 12, 16}, {0, 0, 2}, {0, 6, 8}}}));
  EXPECT_EQ(ring[1], (MicroBatch{3, {{1, 4, 8}, {1, 8, 12}, {0, 2, 4}, {0, 4, 6}}}));
}

TEST(RingMicroBatches, SequenceShorterThanItsChunksLeavesThemOut) {
  const std::vector<MicroBatch> ring = ring_micro_batches({{.length_tokens = 1}}, {0}, 3, 0);
  EXPECT_EQ(ring[0].pieces, (std::vector<Piece>{{0, 0, 1}}));
  EXPECT_TRUE(ring[1].pieces.empty());
  EXPECT_TRUE(ring[2].pieces.empty());
}

TEST(ValidateStepPlan, AcceptsRingsAndWholeSequences) {
  EXPECT_NO_THROW(validate(example_plan(), kWorldSize));
}

TEST(ValidateStepPlan, AcceptsWholeSequencesBesideThePiecesOfARing) {
  StepPlan plan = example_plan();
  plan.pipelines[0].max_len_tokens = 11;
  auto& pieces = micro_batch(plan, 0, 2).pieces;
  pieces.insert(pieces.begin() + 1, {1, 0, 6});
  plan.pipelines[0].lanes[0].clear();
  EXPECT_NO_THROW(validate(plan, kWorldSize));
}

TEST(ValidateStepPlan, EachFaultIsNamed) {
  struct Fault {
    std::function<void(StepPlan&)> make;
    std::string message;
  };
  const Fault faults[] = {
      {[](StepPlan& p) { p.step = -1; }, "step -1 is negative"},
      {[](StepPlan& p) { p.pipelines.clear(); }, "at least one pipeline"},
      {[](StepPlan& p) {
         p.pipelines[1].pipeline.ranks = {2, 3};
       },
       "rank 2 is used twice"},
      {[](StepPlan& p) { p.sequences[1].document = -1; }, "sequence 1: document -1 is negative"},
      {[](StepPlan& p) { p.sequences[1].begin_token = -2; }, "sequence 1: begin -2 is negative"},
      {[](StepPlan& p) { p.sequences[1].length_tokens = 0; }, "sequence 1: length 0 is outside"},
      {[](StepPlan& p) { p.pipelines[0].lanes.pop_back(); }, "2 lists of micro-batches but 3 lanes"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).memory.offload_permille = 1001; },
       "micro-batch 0 of lane 0 of pipeline 1: offload_permille is 1001"},
      {[](StepPlan& p) { micro_batch(p, 0, 2).memory.recompute = true; },
       "its memory policy is 'recompute' but ring 4 has 'keep' on its first lane"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].sequence = 4; }, "sequence 4 is outside [0, 4)"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].sequence = -1; }, "sequence -1 is outside [0, 4)"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].end = 4; },
       "no token range of sequence 3 with 3 tokens"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].end = 0; }, "[0, 0) is no token range"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].begin = -1; }, "[-1, 3) is no token range"},
      // A token in no piece: at the end, at the beginning, a whole sequence.
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].end = 2; },
       "sequence 3: tokens [2, 3) are in no piece"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].begin = 1; },
       "sequence 3: tokens [0, 1) are in no piece"},
      {[](StepPlan& p) { p.sequences.push_back({.length_tokens = 5}); },
       "sequence 4: tokens [0, 5) are in no piece"},
      // A token in two pieces.
      {[](StepPlan& p) {
         p.pipelines[1].lanes[0].push_back({std::nullopt, {{1, 0, 6}}});
       },
       "sequence 1: tokens [0, 6) are in two pieces"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).pieces[0].end = 4; },
       "sequence 0: tokens [2, 4) are in two pieces"},
      {[](StepPlan& p) { p.pipelines[1].max_len_tokens = 6; }, "7 tokens are more than max_len 6"},
      {[](StepPlan& p) { p.pipelines[1].lanes[0].push_back({}); },
       "micro-batch 1 of lane 0 of pipeline 1: it is empty"},
      {[](StepPlan& p) {
         micro_batch(p, 1, 0).pieces = {{3, 0, 1}, {3, 1, 3}, {2, 0, 4}};
       },
       "sequence 3 is cut at [0, 1) but the micro-batch has no ring"},
      // Rings.
      {[](StepPlan& p) { micro_batch(p, 0, 0).ring = 9; }, "ring 9 of pipeline 0: it has one micro-batch"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).ring = micro_batch(p, 0, 2).ring = -1; },
       "a ring's number is at least 0"},
      {[](StepPlan& p) { std::swap(p.pipelines[0].lanes[0], p.pipelines[0].lanes[1]); }, "it skips lane 1"},
      {[](StepPlan& p) {
         p.pipelines[0].lanes[1].push_back({4, {micro_batch(p, 0, 1).pieces[1]}});
         micro_batch(p, 0, 1).pieces.pop_back();
       },
       "ring 4 of pipeline 0: lane 1 has more than one micro-batch of it"},
      {[](StepPlan& p) { std::swap(p.pipelines[0].lanes[1], p.pipelines[0].lanes[2]); },
       "its pieces are not chunks 0 and 3 of each sequence of ring 4"},
      {[](StepPlan& p) {  // contiguous halves: not balanced
         micro_batch(p, 0, 1).pieces = {{0, 0, 5}};
         micro_batch(p, 0, 2).pieces = {{0, 5, 10}};
       },
       "its pieces are not chunks"},
      {[](StepPlan& p) { std::swap(micro_batch(p, 0, 2).pieces[0], micro_batch(p, 0, 2).pieces[1]); },
       "its pieces are not chunks 1 and 2"},
      {[](StepPlan& p) {
         micro_batch(p, 1, 0).pieces.push_back({1, 0, 6});
         p.pipelines[1].max_len_tokens = 13;
         p.pipelines[0].lanes[0] = {{5, {}}};
         p.pipelines[0].lanes[1].push_back({5, {}});
       },
       "ring 5: it shares no sequence"},
      {[](StepPlan& p) {
         p.sequences[0].length_tokens = 2;
         p.pipelines[0].lanes = {{}, {}, {}};
         const auto cut = ring_micro_batches(p.sequences, {0}, 3, 4);
         for (size_t lane = 0; lane < 3; ++lane) p.pipelines[0].lanes[lane] = {cut[lane]};
         p.pipelines[0].lanes[1][0].pieces.push_back({1, 0, 6});
       },
       "a ring over 3 lanes needs a sequence of 6 tokens"},
  };
  for (const Fault& fault : faults) {
    StepPlan plan = example_plan();
    fault.make(plan);
    EXPECT_THAT([&] { validate(plan, kWorldSize); }, ThrowsMessage<InputError>(HasSubstr(fault.message)));
  }
}

TEST(CanonicalBytes, AreStable) {
  // A change here breaks the agreement between ranks of different builds: raise the schema's number.
  EXPECT_EQ(canonical_bytes(StepPlan{}).size(), 8u + 13 + 3 * 8);
  EXPECT_EQ(base::hash_text(hash(example_plan())), "95fa1d06cb564603");
}

TEST(CanonicalBytes, EveryPartOfTheIdentityChangesThem) {
  const std::function<void(StepPlan&)> changes[] = {
      [](StepPlan& p) { p.step = 8; },
      [](StepPlan& p) { p.sequences[0].document = 1; },
      [](StepPlan& p) { p.sequences[0].begin_token = 1; },
      [](StepPlan& p) { p.sequences[0].length_tokens = 11; },
      [](StepPlan& p) { p.sequences.pop_back(); },
      [](StepPlan& p) { p.pipelines.pop_back(); },
      [](StepPlan& p) {
        p.pipelines[0].pipeline.scheme = {3, 1, 1};
      },
      [](StepPlan& p) { std::swap(p.pipelines[0].pipeline.ranks[0], p.pipelines[0].pipeline.ranks[1]); },
      [](StepPlan& p) { p.pipelines[0].max_len_tokens = 9; },
      [](StepPlan& p) { micro_batch(p, 0, 1).ring = 5; },
      [](StepPlan& p) { micro_batch(p, 0, 1).ring.reset(); },
      [](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].sequence = 2; },
      [](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].begin = 1; },
      [](StepPlan& p) { micro_batch(p, 1, 0).pieces[0].end = 2; },
      [](StepPlan& p) { micro_batch(p, 1, 0).memory.recompute = true; },
      [](StepPlan& p) { micro_batch(p, 1, 0).memory.offload_permille = 1; },
      [](StepPlan& p) { std::swap(p.pipelines[0].lanes[0], p.pipelines[0].lanes[1]); },
  };
  for (const auto& change : changes) {
    StepPlan plan = example_plan();
    change(plan);
    EXPECT_NE(canonical_bytes(plan), canonical_bytes(example_plan()));
  }
}

TEST(CanonicalBytes, EstimatesAreNoPartOfTheIdentity) {
  StepPlan plan = example_plan();
  plan.estimated_ns = plan.lower_bound_ns = plan.planning_ns = 1;
  plan.candidates.clear();
  EXPECT_EQ(hash(plan), hash(example_plan()));
}

TEST(StepPlanJson, RoundTripKeepsEverythingButMeasuredTime) {
  const StepPlan plan = example_plan();
  const Json json = to_json(plan);
  const StepPlan back = step_plan_from_json(Json::parse(json.dump()), kWorldSize, "plan.json");
  EXPECT_EQ(back.sequences, plan.sequences);
  EXPECT_EQ(back.pipelines, plan.pipelines);
  EXPECT_EQ(back.planning_ns, 0);
  EXPECT_EQ(to_json(back), json);
  EXPECT_FALSE(json.contains("planning_ns"));
  EXPECT_EQ(json["gap_ppm"], 100'000);
  EXPECT_EQ(json["hash"], base::hash_text(hash(plan)));
  EXPECT_EQ(json["pipelines"][0]["lanes"][1][0]["ring"], 4);
  EXPECT_TRUE(json["pipelines"][0]["lanes"][0][0]["ring"].is_null());
}

TEST(StepPlanJson, MemoryPoliciesStandWhereSomethingIsNotKept) {
  StepPlan plan = example_plan();
  micro_batch(plan, 1, 0).memory = {.recompute = true, .offload_permille = 300};
  const Json json = to_json(plan);
  EXPECT_FALSE(json["pipelines"][0]["lanes"][0][0].contains("memory"));
  EXPECT_EQ(json["pipelines"][1]["lanes"][0][0]["memory"]["offload_permille"], 300);
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan.json").pipelines, plan.pipelines);
  EXPECT_EQ(to_text(micro_batch(plan, 1, 0).memory), "recompute, offload 0.3");
}

TEST(StepPlanJson, EachFaultNamesFileAndKey) {
  const std::pair<std::function<void(Json&)>, std::string> faults[] = {
      {[](Json& j) { j["schema"] = "sluice.plan/2"; }, "schema is 'sluice.plan/2'"},
      {[](Json& j) { j.erase("step"); }, "key 'step' is missing"},
      {[](Json& j) { j["step"] = 1.5; }, "key 'step' has an unexpected value: 1.5"},
      {[](Json& j) { j.erase("sequences"); }, "key 'sequences' is missing"},
      {[](Json& j) { j["sequences"] = 3; }, "sequences: expected a list"},
      {[](Json& j) { j["sequences"][1].erase("length"); }, "sequences[1]: key 'length' is missing"},
      {[](Json& j) { j["sequences"][1] = 3; }, "sequences[1]: key 'document' is missing"},
      {[](Json& j) { j["pipelines"][0]["scheme"] = "<1,1>"; }, "pipelines[0]: scheme '<1,1>'"},
      {[](Json& j) { j["pipelines"][0]["ranks"][0] = "a"; }, "ranks[0]: \"a\" is no rank"},
      {[](Json& j) { j["pipelines"][0]["ranks"][0] = 4294967296; }, "ranks[0]: 4294967296 is no rank"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1] = nullptr; }, "lanes[1]: expected a list"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1][0].erase("pieces"); },
       "lanes[1][0]: key 'pieces' is missing"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1][0]["ring"] = "x"; }, "key 'ring' has an unexpected value"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1][0]["pieces"][0]["sequence"] = 4294967296; },
       "key 'sequence' has an unexpected value"},
      {[](Json& j) { j["pipelines"][0]["max_len"] = 1; }, "more than max_len 1"},
      {[](Json& j) { j["strategy"] = "1x<1,1,1>"; }, "strategy is '1x<1,1,1>'"},
      {[](Json& j) { j["hash"] = "0000000000000000"; }, "hash is '0000000000000000'"},
      {[](Json& j) { j["candidates"][0].erase("estimated_ns"); }, "candidates[0]: key 'estimated_ns'"},
  };
  for (const auto& [make, fault] : faults) {
    Json json = to_json(example_plan());
    make(json);
    EXPECT_THAT([&] { step_plan_from_json(json, kWorldSize, "plan.json"); },
                ThrowsMessage<InputError>(AllOf(HasSubstr("plan.json: "), HasSubstr(fault))));
  }
}

TEST(StepPlanJson, MutatedBytesNeverDoMoreThanThrow) {
  const std::string bytes = to_json(example_plan()).dump();
  base::Rng rng(4);
  for (int round = 0; round < 3000; ++round) {
    std::string mutated = bytes;
    for (int64_t count = rng.between(1, 3); count > 0; --count) {
      mutated[rng.below(mutated.size())] = "0123456789-{}[]\",:.e\x80"[rng.below(21)];
    }
    try {
      step_plan_from_json(base::parse_json(mutated, "plan.json"), kWorldSize, "plan.json");
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace sluice::strategy
