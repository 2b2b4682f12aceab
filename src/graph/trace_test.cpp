#include "graph/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "graph/testing.h"

namespace sluice::graph {
namespace {

StepGraph two_stages() {
  const model::Shape shape = testing::small_shape(4);
  return build(testing::plan_from_text("<2,2,1>", {"30, 40"}, 4), model::parameter_table(shape),
               testing::small_cost(shape), 4);
}

TEST(Trace, IsJsonWithASliceForEveryNodeAndMember) {
  const StepGraph graph = two_stages();
  size_t members = 0;
  for (const Node& node : graph.nodes) members += node.members.size();
  const base::Json trace = base::parse_json(chrome_trace(trace_records(graph)), "trace");
  size_t slices = 0;
  for (const base::Json& event : trace.at("traceEvents")) slices += event.at("ph") == "X" ? 1 : 0;
  EXPECT_EQ(slices, members);
}

TEST(Trace, EveryArrowHasOneTailAndOneHead) {
  const base::Json trace = base::parse_json(chrome_trace(trace_records(two_stages())), "trace");
  std::map<int64_t, std::vector<int>> tails;
  std::map<int64_t, std::vector<int>> heads;
  for (const base::Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "s") tails[event.at("id")].push_back(event.at("pid"));
    if (event.at("ph") == "f") heads[event.at("id")].push_back(event.at("pid"));
  }
  EXPECT_EQ(tails.size(), 2u * 2u * 2u) << "micro-batches x directions x TP ranks";
  for (const auto& [flow, ranks] : tails) {
    EXPECT_EQ(ranks.size(), 1u);
    ASSERT_EQ(heads[flow].size(), 1u);
    EXPECT_EQ(std::abs(heads[flow][0] - ranks[0]), 2) << "the same TP index of the other stage";
  }
}

TEST(Trace, TimesKeepTheirNanoseconds) {
  const TraceRecord record{
      .label = "a \"b\"", .category = "c", .rank = 3, .start_ns = 1'002'003, .end_ns = 1'002'010};
  EXPECT_THAT(
      chrome_trace({record}),
      ::testing::HasSubstr(
          R"({"ph":"X","pid":3,"tid":0,"name":"a \"b\"","cat":"c","ts":1002.003,"dur":0.007,"args":{}})"));
}

TEST(Trace, CountersAreDrawn) {
  EXPECT_THAT(
      chrome_trace({}, {{.name = "bytes", .rank = 1, .time_ns = 5000, .value = 7}}),
      ::testing::HasSubstr(R"({"ph":"C","pid":1,"tid":0,"name":"bytes","ts":5.000,"args":{"bytes":7}})"));
}

TEST(Trace, ReadBackIsWhatWasWritten) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const testing::RandomCase random = testing::random_case(seed, {.max_lanes = 3});
    const StepGraph graph = build(random.plan, random.table, random.cost, random.world_size);
    const std::string bytes = chrome_trace(trace_records(graph), {{"memory", 0, 5'001, 7}});
    const Trace trace = parse_chrome_trace(bytes, "trace");
    ASSERT_EQ(chrome_trace(trace.records, trace.counters), bytes) << "seed " << seed;
  }
}

std::string fault_of(const std::string& bytes) {
  try {
    parse_chrome_trace(bytes, "t.json");
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Trace, DamagedFilesAreRefusedWithTheirLine) {
  const std::string whole = chrome_trace({{.label = "a", .category = "c", .end_ns = 5}});
  EXPECT_EQ(fault_of(whole), "");
  EXPECT_THAT(fault_of("{}"), ::testing::HasSubstr("t.json: not a timeline"));
  EXPECT_THAT(fault_of(whole.substr(0, whole.size() - 5)), ::testing::HasSubstr("t.json"));
  std::string damaged = whole;
  damaged.replace(damaged.find("\"dur\":0.005"), 11, "\"dur\":-1.00");
  EXPECT_THAT(fault_of(damaged), ::testing::HasSubstr("t.json:4: 'a' ends before it starts"));
  damaged = whole;
  damaged.replace(damaged.find("\"pid\":0,\"tid\":0,\"name\":\"a\""), 7, "\"pid\":\"x");
  EXPECT_THAT(fault_of(damaged), ::testing::HasSubstr("t.json:4"));
}

}  // namespace
}  // namespace sluice::graph
