#include "strategy/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "strategy/branches.h"

namespace sluice::strategy {
namespace {

using base::InputError;
using base::Json;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kWorldSize = 8;

// Sequence 0 on lanes 1 and 2 of pipeline 0, the others whole.
StepPlan example_plan() {
  StepPlan plan;
  plan.step = 7;
  plan.sequences = {{.document = 11, .begin_token = 0, .length_tokens = 10},
                    {.document = 5, .begin_token = 64, .length_tokens = 6},
                    {.document = 9, .begin_token = 0, .length_tokens = 4},
                    {.document = 2, .begin_token = 0, .length_tokens = 3}};
  const Strategy strategy = parse_strategy("<1,1,3> + <2,1,1>", kWorldSize);
  plan.pipelines.push_back(
      {.pipeline = strategy.pipelines[0],
       .max_len_tokens = 8,
       .micro_batches = {{.sequences = {{1, 6}}},
                         {.first_lane = 1, .lanes = 2, .sequences = {{0, 10}}, .number = 4}}});
  plan.pipelines.push_back({.pipeline = strategy.pipelines[1],
                            .max_len_tokens = 7,
                            .micro_batches = {{.sequences = {{3, 3}, {2, 4}}}}});
  plan.estimated_ns = 1100;
  plan.lower_bound_ns = 1000;
  plan.planning_ns = 77;
  plan.candidates = {{.strategy = "<1,1,3> + <2,1,1>", .estimated_ns = 1100}};
  return plan;
}

PipelineMicroBatch& micro_batch(StepPlan& plan, size_t pipeline, size_t index) {
  return plan.pipelines[pipeline].micro_batches[index];
}

TEST(StepPlan, CountsTokensTargetsAndGap) {
  const StepPlan plan = example_plan();
  EXPECT_EQ(plan.tokens(), 23);
  EXPECT_EQ(plan.targets(), 19);
  EXPECT_EQ(plan.gap_ppm(), 100'000);
  EXPECT_EQ(plan.pipelines[1].micro_batches[0].tokens(), 7);
  EXPECT_EQ(to_text(plan.strategy()), "1x<1,1,3> + 1x<2,1,1>");
}

TEST(StepPlan, GapIsZeroWithoutBoundAndNeverOverflows) {
  StepPlan plan;
  plan.estimated_ns = INT64_MAX;
  EXPECT_EQ(plan.gap_ppm(), 0);
  plan.lower_bound_ns = 1;
  EXPECT_EQ(plan.gap_ppm(), INT64_MAX);
}

TEST(StepPlan, LanesRunTheUnitsThatLieOnThem) {
  const std::vector<std::vector<LanePart>> lanes = lane_parts(example_plan().pipelines[0]);
  ASSERT_EQ(lanes.size(), 3u);
  ASSERT_EQ(lanes[0].size(), 1u);
  EXPECT_EQ(lanes[0][0].micro_batch, 0);
  EXPECT_EQ(lanes[0][0].pieces, (std::vector<Piece>{{1, 0, 6}}));
  EXPECT_EQ(lanes[1][0].micro_batch, 1);
  EXPECT_EQ(lanes[1][0].pieces, (std::vector<Piece>{{0, 0, 2}, {0, 7, 10}}));
  EXPECT_EQ(lanes[2][0].tokens(), 5);
}

TEST(ValidateStepPlan, AcceptsUnitsOfOneLaneAndOfSeveral) {
  EXPECT_NO_THROW(validate(example_plan(), kWorldSize));
}

TEST(ValidateStepPlan, AcceptsWholeSequencesBesideSharedOnes) {
  StepPlan plan = example_plan();
  plan.pipelines[0].max_len_tokens = 11;
  micro_batch(plan, 0, 1).own = {{}, {{1, 6}}};
  plan.pipelines[0].micro_batches.erase(plan.pipelines[0].micro_batches.begin());
  EXPECT_NO_THROW(validate(plan, kWorldSize));
}

TEST(ValidateStepPlan, EachFaultIsNamed) {
  const std::pair<std::function<void(StepPlan&)>, std::string> faults[] = {
      {[](StepPlan& p) { p.step = -1; }, "step -1 is negative"},
      {[](StepPlan& p) { p.pipelines.clear(); }, "a strategy has no pipeline"},
      {[](StepPlan& p) {
         p.pipelines[1].pipeline.ranks = {2, 3};
       },
       "rank 2 is used twice"},
      {[](StepPlan& p) { p.pipelines[0].pipeline.scheme.fsdp = 2; },
       "fsdp 2 does not divide cp 3, so its lanes make no whole FSDP groups: choose one of 1, 3"},
      {[](StepPlan& p) { p.pipelines[0].pipeline.scheme.fsdp = 3; },
       "pipeline 0: a micro-batch of lane 0 is in no pass: where lanes share parameters each is in one"},
      {[](StepPlan& p) { p.sequences[1].document = -1; }, "sequence 1: document -1 is negative"},
      {[](StepPlan& p) { p.sequences[1].begin_token = -2; }, "sequence 1: begin -2 is negative"},
      {[](StepPlan& p) { p.sequences[1].length_tokens = 0; }, "sequence 1: length 0 is outside"},
      {[](StepPlan& p) { p.sequences[1].length_tokens = 7; },
       "sequence 1 has 6 tokens there but 7 in the batch"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).lanes = 3; },
       "a micro-batch lies on 3 lanes from lane 1 on, but it has 3"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).lanes = 0; }, "a micro-batch lies on 0 lanes"},
      {[](StepPlan& p) {  // lane 2's second stands before lane 0's first
         p.sequences.push_back({.length_tokens = 1});
         p.pipelines[0].micro_batches.insert(p.pipelines[0].micro_batches.begin(),
                                             {.first_lane = 1, .sequences = {{4, 1}}});
         std::swap(micro_batch(p, 0, 1), micro_batch(p, 0, 2));
       },
       "pipeline 0: its micro-batches are not in the order of injection"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).memory.offload_permille = 1001; },
       "micro-batch 0 of lane 0 of pipeline 1: offload_permille is 1001"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).exchange = Exchange::kHeads; },
       "micro-batch 0 of lane 0 of pipeline 1: its exchange is 'heads' on one lane"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).exchange = Exchange::kNested; },
       "its exchange is 'nested' with runs of 0 lanes: choose a divisor of its 2 lanes"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).nested_lanes = 2; },
       "its exchange is 'ring', which has no runs of 2 lanes"},
      {[](StepPlan& p) { micro_batch(p, 0, 0).pass = 0; },
       "micro-batch 0 of lane 0 of pipeline 0: it is in pass 0, but its lanes share no parameters"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).sequences[0].sequence = 4; }, "sequence 4 is outside [0, 4)"},
      {[](StepPlan& p) { micro_batch(p, 1, 0).sequences[0].sequence = -1; }, "sequence -1 is outside [0, 4)"},
      {[](StepPlan& p) { p.sequences.push_back({.length_tokens = 5}); }, "sequence 4 is in no micro-batch"},
      {[](StepPlan& p) {
         p.pipelines[1].micro_batches.push_back({.sequences = {{1, 6}}});
       },
       "sequence 1 is in two micro-batches"},
      {[](StepPlan& p) { p.pipelines[1].max_len_tokens = 6; }, "7 tokens on lane 0 are more than max_len 6"},
      {[](StepPlan& p) { p.pipelines[1].micro_batches.emplace_back(); },
       "micro-batch 1 of lane 0 of pipeline 1: it is empty"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).number = -1; }, "a ring's number is at least 0"},
      {[](StepPlan& p) {
         p.sequences.push_back({.length_tokens = 9});
         p.pipelines[0].micro_batches.push_back(
             {.first_lane = 1, .lanes = 2, .sequences = {{4, 9}}, .number = 4});
       },
       "ring 4 of pipeline 0: it is there twice"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).own = {{}}; }, "it has 1 lists of whole sequences on 2 lanes"},
      {[](StepPlan& p) { micro_batch(p, 0, 1).sequences.clear(); }, "it shares no sequence"},
      {[](StepPlan& p) {
         p.sequences[0].length_tokens = micro_batch(p, 0, 1).sequences[0].length_tokens = 1;
       },
       "it leaves lane 2 without tokens: a ring over 2 lanes needs a sequence of 4 tokens"},
  };
  for (const auto& [make, fault] : faults) {
    StepPlan plan = example_plan();
    make(plan);
    EXPECT_THAT([&] { validate(plan, kWorldSize); }, ThrowsMessage<InputError>(HasSubstr(fault)));
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
        p.pipelines[0].pipeline.scheme = {2, 1, 3};
      },
      [](StepPlan& p) { std::swap(p.pipelines[0].pipeline.ranks[0], p.pipelines[0].pipeline.ranks[1]); },
      [](StepPlan& p) { p.pipelines[0].max_len_tokens = 9; },
      [](StepPlan& p) { p.pipelines[0].pipeline.scheme.fsdp = 3; },
      [](StepPlan& p) { micro_batch(p, 0, 1).number = 5; },
      [](StepPlan& p) { micro_batch(p, 0, 1).lanes = 1; },
      [](StepPlan& p) { micro_batch(p, 0, 1).exchange = Exchange::kHeads; },
      [](StepPlan& p) { micro_batch(p, 0, 1).nested_lanes = 2; },
      [](StepPlan& p) { micro_batch(p, 0, 1).pass = 0; },
      [](StepPlan& p) { micro_batch(p, 1, 0).sequences[0].sequence = 2; },
      [](StepPlan& p) { micro_batch(p, 1, 0).sequences[0].length_tokens = 2; },
      [](StepPlan& p) { micro_batch(p, 1, 0).memory.recompute_permille = 1000; },
      [](StepPlan& p) { micro_batch(p, 1, 0).memory.offload_permille = 1; },
      [](StepPlan& p) { micro_batch(p, 0, 1).first_lane = 0; },
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
  EXPECT_EQ(json["pipelines"][0]["lanes"][1][0]["micro_batch"], 4);
  EXPECT_EQ(json["pipelines"][0]["lanes"][1][0]["exchange"], "ring");
  EXPECT_TRUE(json["pipelines"][0]["lanes"][0][0]["micro_batch"].is_null());
  EXPECT_TRUE(json["pipelines"][0]["lanes"][0][0]["exchange"].is_null());
}

TEST(StepPlanJson, WholeSequencesStandBesideExchangedHeads) {
  StepPlan plan = example_plan();
  plan.sequences.push_back({.length_tokens = 3});
  micro_batch(plan, 0, 1).own = {{}, {{4, 3}}};
  micro_batch(plan, 0, 1).exchange = Exchange::kHeads;
  Json json = to_json(plan);
  EXPECT_EQ(json["pipelines"][0]["lanes"][1][0]["exchange"], "heads");
  EXPECT_FALSE(json["pipelines"][0]["lanes"][1][0].contains("nested_lanes"));
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan.json").pipelines, plan.pipelines);
  json["pipelines"][0]["lanes"][1][0]["nested_lanes"] = 2;
  EXPECT_THAT([&] { step_plan_from_json(json, kWorldSize, "plan.json"); },
              ThrowsMessage<InputError>(HasSubstr("its nested_lanes are 0 but ring 4 has 2")));
}

TEST(StepPlanJson, BranchesStandWithTheirSequence) {
  StepPlan plan = example_plan();
  const uint64_t without = hash(plan);
  const auto branch = [&](size_t sequence, std::vector<int64_t> branches, MicroBatchSequence& of) {
    plan.sequences[sequence].branches = std::move(branches);
    of = micro_batch_sequence(static_cast<int32_t>(sequence), plan.sequences[sequence]);
  };
  branch(0, {1, 6}, micro_batch(plan, 0, 1).sequences[0]);  // over two lanes
  branch(2, {2, 1}, micro_batch(plan, 1, 0).sequences[1]);
  EXPECT_EQ(plan.targets(), 23 - 2 - 1 - 2 - 1);
  EXPECT_EQ(micro_batch(plan, 0, 1).sequences[0].prefix_tokens, 3);
  EXPECT_EQ(micro_batch(plan, 0, 1).sequences[0].branch_tokens, 5);  // 37 ÷ 7
  validate(plan, kWorldSize);
  EXPECT_NE(hash(plan), without);
  const StepPlan again = step_plan_from_json(Json::parse(to_json(plan).dump()), kWorldSize, "a plan");
  EXPECT_EQ(canonical_bytes(again), canonical_bytes(plan));
  EXPECT_EQ(again.pipelines, plan.pipelines);
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{10}, {4, 6}, {0}, {-1}, {1, INT64_MAX}}) {
    StepPlan faulty = plan;
    faulty.sequences[0].branches = wrong;
    EXPECT_THROW(validate(faulty, kWorldSize), InputError);
  }
  StepPlan faulty = plan;
  faulty.sequences[0].branches = {2, 5};
  EXPECT_THAT([&] { validate(faulty, kWorldSize); },
              ThrowsMessage<InputError>(HasSubstr("sequence 0 has other branches there than in the batch")));
  Json json = to_json(plan);
  json["sequences"][0]["branches"] = {1, 9};
  EXPECT_THAT([&] { step_plan_from_json(json, kWorldSize, "a plan"); },
              ThrowsMessage<InputError>(HasSubstr("a branch of 9, where 9 are left")));
}

TEST(ForEachPart, EveryRowIsOfTheTextThatItBelongsTo) {
  const Sequence sequence{.length_tokens = 10, .branches = {1, 4, 2}};
  for (int64_t begin = 0; begin < 10; ++begin) {
    for (int64_t end = begin + 1; end <= 10; ++end) {
      int64_t row = begin;
      for_each_part(sequence, {0, begin, end}, [&](int branch, base::Interval tokens) {
        const int64_t first = std::vector<int64_t>{0, 3, 4, 8}[static_cast<size_t>(branch + 1)];
        EXPECT_EQ(row, branch < 0 ? tokens.begin : first + tokens.begin - 3);
        row += tokens.size();
      });
      EXPECT_EQ(row, end);
    }
  }
  for_each_part({.length_tokens = 10}, {0, 2, 7}, [](int branch, base::Interval tokens) {
    EXPECT_EQ(branch, -1);
    EXPECT_EQ(tokens, (base::Interval{2, 7}));
  });
}

TEST(StepPlanJson, APaceStandsWhereARankIsSlow) {
  StepPlan plan = example_plan();
  EXPECT_FALSE(to_json(plan).at("pipelines").at(0).contains("slowdown_percent"));
  plan.pipelines[0].pipeline.slowdown_percent = 185;
  plan.pipelines[0].pipeline.device = {250, 4096};
  const Json json = to_json(plan);
  EXPECT_EQ(json.at("pipelines").at(0).at("slowdown_percent"), 185);
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan").pipelines[0].pipeline.slowdown_percent, 185);
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan").pipelines[0].pipeline.device, (Device{250, 4096}));
  EXPECT_NE(hash(plan), hash(example_plan()));
  StepPlan narrow = plan;
  narrow.pipelines[0].pipeline.device.low_precision =
      std::make_shared<const LowPrecisionGemms>(LowPrecisionGemms{base::GemmFormat::kInt8, {0, 3}});
  EXPECT_EQ(step_plan_from_json(to_json(narrow), kWorldSize, "plan").pipelines[0].pipeline,
            narrow.pipelines[0].pipeline);
  EXPECT_NE(hash(narrow), hash(plan));
  for (const auto& [key, value] : {std::pair<const char*, Json>{"format", "int9"}, {"layers", {3, 1}}}) {
    Json refused = to_json(narrow);
    refused.erase("hash");
    refused["pipelines"][0]["device"]["low_precision"][key] = value;
    EXPECT_THROW(step_plan_from_json(refused, kWorldSize, "plan"), base::InputError) << key;
  }
  Json wrong = json;
  wrong.erase("hash");
  wrong["pipelines"][0]["slowdown_percent"] = 0;
  EXPECT_THROW(step_plan_from_json(wrong, kWorldSize, "plan"), InputError);
}

// The plan as a file of version 1.
std::string as_version_1(const Json& json) {
  std::string text = json.dump();
  for (const auto& [now, before] : std::initializer_list<std::pair<std::string, std::string>>{
           {"sluice.plan/2", "sluice.plan/1"},
           {"\"micro_batch\"", "\"ring\""},
           {"\"slowdown_percent\"", "\"pace_percent\""},
           {"\"low_precision\"", "\"narrow\""},
           {"\"expert_placement\"", "\"experts\""},
           {"\"recompute_dispatch\"", "\"visits_again\""}}) {
    for (size_t at = text.find(now); at != std::string::npos; at = text.find(now, at + before.size()))
      text.replace(at, now.size(), before);
  }
  return text;
}

TEST(StepPlanJson, Version1IsRead) {
  StepPlan plan = example_plan();
  plan.pipelines[0].pipeline.slowdown_percent = 185;
  plan.pipelines[0].pipeline.device = {250, 4096};
  plan.pipelines[0].pipeline.device.low_precision =
      std::make_shared<const LowPrecisionGemms>(LowPrecisionGemms{base::GemmFormat::kInt8, {0, 3}});
  plan.pipelines[0].pipeline.placement =
      std::make_shared<const ExpertPlacement>(ExpertPlacement{{{}, {0, 1, 2}}});
  micro_batch(plan, 1, 0).memory.recompute_dispatch = true;
  const std::string before = as_version_1(to_json(plan));
  EXPECT_THAT(before, AllOf(HasSubstr("\"pace_percent\""), HasSubstr("\"ring\""), HasSubstr("\"narrow\"")));
  const StepPlan read = step_plan_from_json(Json::parse(before), kWorldSize, "plan");
  EXPECT_EQ(to_json(read), to_json(plan)) << "with its hash";
  EXPECT_THROW(step_plan_from_json({{"schema", "sluice.plan/3"}}, kWorldSize, "plan"), InputError);
  EXPECT_THROW(step_plan_from_json({{"schema", 1}}, kWorldSize, "plan"), InputError);
}

TEST(StepPlanJson, PlacedExpertsStandLaneByLane) {
  StepPlan plan = example_plan();
  Pipeline& pipeline = plan.pipelines[0].pipeline;
  const int lanes = pipeline.scheme.ep;
  ASSERT_EQ(lanes, 1);
  pipeline.placement = std::make_shared<const ExpertPlacement>(ExpertPlacement{{{}, {0, 1, 2}}});
  const Json json = to_json(plan);
  EXPECT_EQ(json.at("pipelines").at(0).at("expert_placement"), Json::parse("[[[]], [[0, 1, 2]]]"));
  EXPECT_FALSE(json.at("pipelines").at(1).contains("expert_placement"));
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan.json").pipelines, plan.pipelines);
  EXPECT_NE(hash(plan), hash(example_plan()));
  const std::pair<const char*, const char*> faults[] = {
      {"[[[]], [[0, 2]]]", "layer 1: expert 1 lies on no lane"},
      {"[[[]], [[1, 0]]]", "layer 1: the experts of lane 0 are not in ascending order"},
      {"[[[]], [[0], [1]]]", "lists experts of 2 lanes: give one list for each of 1"},
      {"[[[]], [[0], [1, 2]]]", "has 2 experts: give every lane as many"},
      {"[[[]], [[\"first\"]]]", "give an expert, counted from 0"}};
  for (const auto& [experts, fault] : faults) {
    Json wrong = json;
    wrong.erase("hash");
    wrong["pipelines"][0]["expert_placement"] = Json::parse(experts);
    EXPECT_THAT([&] { step_plan_from_json(wrong, kWorldSize, "plan.json"); },
                ThrowsMessage<InputError>(HasSubstr(fault)));
  }
}

TEST(StepPlanJson, MemoryPoliciesStandWhereSomethingIsNotKept) {
  StepPlan plan = example_plan();
  micro_batch(plan, 1, 0).memory = {.recompute_permille = 1000, .offload_permille = 300};
  const Json json = to_json(plan);
  EXPECT_FALSE(json["pipelines"][0]["lanes"][0][0].contains("memory"));
  EXPECT_EQ(json["pipelines"][1]["lanes"][0][0]["memory"]["offload_permille"], 300);
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan.json").pipelines, plan.pipelines);
  EXPECT_EQ(to_text(micro_batch(plan, 1, 0).memory), "recompute, offload 0.3");
  const uint64_t before = hash(plan);
  micro_batch(plan, 1, 0).memory.recompute_dispatch = true;
  EXPECT_EQ(step_plan_from_json(to_json(plan), kWorldSize, "plan.json").pipelines, plan.pipelines);
  EXPECT_EQ(to_text(micro_batch(plan, 1, 0).memory), "recompute, dispatch again, offload 0.3");
  EXPECT_NE(hash(plan), before);
  const uint64_t all = hash(plan);
  micro_batch(plan, 1, 0).memory = {.recompute_permille = 250, .recompute_dispatch = true};
  EXPECT_EQ(to_json(plan)["pipelines"][1]["lanes"][0][0]["memory"]["recompute_permille"], 250);
  EXPECT_EQ(step_plan_from_json(to_json(plan), kWorldSize, "plan.json").pipelines, plan.pipelines);
  EXPECT_EQ(to_text(micro_batch(plan, 1, 0).memory), "recompute 0.25, dispatch again");
  EXPECT_NE(hash(plan), all);
}

TEST(MemoryPolicy, RecomputesItsShareOfAnyRunOfLayers) {
  for (int permille = 0; permille <= 1000; permille += 7) {
    const MemoryPolicy policy{.recompute_permille = permille};
    int64_t before = 0;
    for (int64_t layer = 0; layer < 90; ++layer) {
      before += policy.recomputes(layer) ? 1 : 0;
      EXPECT_EQ(before, (layer + 1) * permille / 1000);
    }
  }
  EXPECT_THROW(validate({.recompute_permille = 1001}), InputError);
  EXPECT_THROW(validate({.recompute_permille = -1}), InputError);
}

// A lane's list of micro-batches.
Json& listed(Json& plan, size_t pipeline, size_t lane) { return plan["pipelines"][pipeline]["lanes"][lane]; }

TEST(StepPlanJson, WholeSequencesMayStandAnywhereBesideSharedOnes) {
  StepPlan plan = example_plan();
  plan.pipelines[0].max_len_tokens = 11;
  micro_batch(plan, 0, 1).own = {{}, {{1, 6}}};
  plan.pipelines[0].micro_batches.erase(plan.pipelines[0].micro_batches.begin());
  Json json = to_json(plan);
  Json& pieces = listed(json, 0, 2)[0]["pieces"];
  std::swap(pieces[0], pieces[2]);
  std::swap(pieces[1], pieces[2]);
  EXPECT_EQ(step_plan_from_json(json, kWorldSize, "plan.json").pipelines, plan.pipelines);
}

TEST(StepPlanJson, MicroBatchesThatNoUnitMakesAreNamed) {
  const Json shared = to_json(example_plan())["pipelines"][0]["lanes"][1][0];
  const std::pair<std::function<void(Json&)>, std::string> faults[] = {
      {[](Json& j) { j["pipelines"][0]["lanes"].erase(2); }, "2 lists of micro-batches but 3 lanes"},
      {[](Json& j) { listed(j, 1, 0)[0]["pieces"][0]["sequence"] = 4; }, "sequence 4 is outside [0, 4)"},
      {[](Json& j) { listed(j, 1, 0)[0]["pieces"][0]["end"] = 4; },
       "no token range of sequence 3 with 3 tokens"},
      {[](Json& j) { listed(j, 1, 0)[0]["pieces"][0]["end"] = 0; }, "[0, 0) is no token range"},
      {[](Json& j) { listed(j, 1, 0)[0]["pieces"][0]["begin"] = -1; }, "[-1, 3) is no token range"},
      {[](Json& j) { listed(j, 1, 0)[0]["pieces"][0]["end"] = 2; },
       "sequence 3 is cut at [0, 2) but the micro-batch has no ring"},
      {[](Json& j) { listed(j, 0, 0)[0]["micro_batch"] = 9; },
       "ring 9 of pipeline 0: it has one micro-batch"},
      {[](Json& j) { std::swap(listed(j, 0, 0), listed(j, 0, 1)); }, "it skips lane 1"},
      {[&](Json& j) { listed(j, 0, 1).push_back(shared); }, "lane 1 has more than one micro-batch of it"},
      {[](Json& j) {
         listed(j, 0, 2)[0]["memory"] = {{"recompute", true}};
       },
       "its memory policy is 'recompute' but ring 4 has 'keep' on its first lane"},
      {[](Json& j) { listed(j, 0, 2)[0]["exchange"] = "heads"; },
       "its exchange is 'heads' but ring 4 has 'ring' on its first lane"},
      {[](Json& j) { listed(j, 0, 2)[0]["exchange"] = "rings"; },
       "choose ring, heads, nested, balanced or queries"},
      {[](Json& j) { std::swap(listed(j, 0, 1), listed(j, 0, 2)); },
       "its pieces are not chunks 0 and 3 of each sequence of ring 4"},
      {[](Json& j) {  // contiguous halves: not balanced
         listed(j, 0, 1)[0]["pieces"] = {{{"sequence", 0}, {"begin", 0}, {"end", 5}}};
         listed(j, 0, 2)[0]["pieces"] = {{{"sequence", 0}, {"begin", 5}, {"end", 10}}};
       },
       "its pieces are not chunks"},
      {[&](Json& j) {
         Json other = shared;
         other["micro_batch"] = 5;
         listed(j, 0, 1).push_back(other);
         listed(j, 0, 2).insert(listed(j, 0, 2).begin(), listed(j, 0, 2)[0]);
         listed(j, 0, 2)[0]["micro_batch"] = 5;
       },
       "its rings cross"},
  };
  for (const auto& [make, fault] : faults) {
    Json json = to_json(example_plan());
    json.erase("hash");
    make(json);
    EXPECT_THAT([&] { step_plan_from_json(json, kWorldSize, "plan.json"); },
                ThrowsMessage<InputError>(AllOf(HasSubstr("plan.json: "), HasSubstr(fault))));
  }
}

TEST(StepPlanJson, EachFaultNamesFileAndKey) {
  const std::pair<std::function<void(Json&)>, std::string> faults[] = {
      {[](Json& j) { j["schema"] = "sluice.plan/3"; }, "schema is 'sluice.plan/3'"},
      {[](Json& j) { j.erase("step"); }, "key 'step' is missing"},
      {[](Json& j) { j["step"] = 1.5; }, "key 'step' is 1.5: give a whole number within 64 bits"},
      {[](Json& j) { j.erase("sequences"); }, "key 'sequences' is missing"},
      {[](Json& j) { j["sequences"] = 3; }, "sequences is 3: give a list"},
      {[](Json& j) { j["sequences"][1].erase("length"); }, "sequences[1]: key 'length' is missing"},
      {[](Json& j) { j["sequences"][1] = 3; }, "sequences[1]: key 'document' is missing"},
      {[](Json& j) { j["pipelines"][0]["scheme"] = "<1,1>"; }, "pipelines[0]: scheme '<1,1>'"},
      {[](Json& j) { j["pipelines"][0]["ranks"][0] = "a"; }, "ranks[0] is \"a\": give a rank"},
      {[](Json& j) { j["pipelines"][0]["ranks"][0] = 4294967296; }, "ranks[0] is 4294967296: give a rank"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1] = nullptr; }, "lanes[1] is null: give a list"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1][0].erase("pieces"); },
       "lanes[1][0]: key 'pieces' is missing"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1][0]["micro_batch"] = "x"; },
       "key 'micro_batch' is \"x\": give a whole number"},
      {[](Json& j) { j["pipelines"][0]["lanes"][1][0]["pieces"][0]["sequence"] = 4294967296; },
       "key 'sequence' is 4294967296: give a whole number within 32 bits"},
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
