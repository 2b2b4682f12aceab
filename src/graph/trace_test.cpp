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

}  // namespace
}  // namespace sluice::graph
