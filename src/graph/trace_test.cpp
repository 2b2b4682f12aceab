#include "graph/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "graph/fsdp_moves.h"
#include "graph/memory.h"
#include "graph/test_graphs.h"
#include "model/outline.h"

namespace sluice::graph {
namespace {

StepGraph two_stages() {
  const model::Outline outline = model::outline_of_12_heads(4);
  return build(testing::plan_from_text("<2,2,1>", {"30, 40"}, 4), model::parameter_table(outline),
               testing::small_cost(outline), 4);
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

// On a stream of their own, one after the other: every operation of every cell that needs it.
TEST(Trace, GathersAndSumsHaveAStreamOfTheirOwn) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const cost::CostModel cost = testing::small_cost(outline);
  const StepGraph graph = build(testing::plan_from_text("<1,2,2,2>", {"30, 40, 20 / 20, 50"}, 4),
                                model::parameter_table(outline), cost, 4);
  const std::vector<TraceRecord> records = fsdp_records(graph, cost, {0, 1, 2, 3});
  std::map<int, int64_t> free_ns;
  std::map<std::string, int> counts;
  for (const TraceRecord& record : records) {
    EXPECT_EQ(record.stream, Stream::kFsdp);
    EXPECT_GE(record.start_ns, free_ns[record.rank]) << record.label;
    EXPECT_LE(record.end_ns, graph.makespan_ns);
    free_ns[record.rank] = record.end_ns;
    if (record.rank == 0 || record.rank == 2) ++counts[record.label];
  }
  EXPECT_EQ(counts["gather p0 s0 l0-2 m0 E"], 1) << "the embedding's backward needs no parameters";
  EXPECT_EQ(counts["gather p0 s0 l0-2 m0 L0-1"], 2) << "forward and backward";
  EXPECT_EQ(counts["scatter p0 s0 l0-2 m2 L0-1"], 1);
  EXPECT_EQ(counts["gather p0 s1 l0-2 m1 L2-3"], 2);
  EXPECT_EQ(counts["gather p0 s1 l0-2 m1 L3-4"], 1) << "the last block stays for its backward";
  EXPECT_EQ(counts["scatter p0 s1 l0-2 m1 H"], 1);
  const Trace read = parse_chrome_trace(chrome_trace(records), "trace");
  ASSERT_EQ(read.records.size(), records.size());
  EXPECT_EQ(read.records.front().stream, Stream::kFsdp);
  EXPECT_EQ(read.records.front().category, kGather);
}

// In each block's backward, sums between runs follow sums inside runs.
TEST(Trace, SumsBetweenNodesFollowThoseInside) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const cost::CostModel cost = testing::small_cost(outline, {.gpus_per_node = 2});
  const StepGraph graph = build(testing::plan_from_text("<1,1,4,4>", {"30, 40, 20 / 20, 50 / 20 / 30"}, 4),
                                model::parameter_table(outline), cost, 4);
  std::map<std::string, std::vector<TraceRecord>> sums;
  for (const TraceRecord& record : fsdp_records(graph, cost, {0})) {
    if (record.category == kScatter) sums[record.label].push_back(record);
  }
  for (const char* block : {"L0-1", "L1-2", "L2-3", "L3-4"}) {
    const std::string at = std::string("p0 s0 l0-4 m0 ") + block;
    const auto &inside = sums["scatter " + at], &between = sums["scatter between " + at];
    ASSERT_EQ(inside.size(), 1u) << at;
    ASSERT_EQ(between.size(), 1u) << at;
    EXPECT_GE(between[0].start_ns, inside[0].end_ns) << at;
  }
}

TEST(Trace, TimesKeepTheirNanoseconds) {
  const TraceRecord record{
      .label = "a \"b\"", .category = "c", .rank = 3, .start_ns = 1'002'003, .end_ns = 1'002'010};
  EXPECT_THAT(
      chrome_trace({record}),
      ::testing::HasSubstr(
          R"({"ph":"X","pid":3,"tid":1,"name":"a \"b\"","cat":"c","ts":1002.003,"dur":0.007,"args":{}})"));
}

TEST(Trace, ArrowsEndInsideTheirSlices) {
  const base::Json trace = base::parse_json(chrome_trace(trace_records(two_stages())), "trace");
  base::Json slice;
  for (const base::Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") slice = event;
    if (event.at("ph") != "f" && event.at("ph") != "s") continue;
    EXPECT_EQ(event.at("tid"), slice.at("tid"));
    EXPECT_GE(event.at("ts").get<double>(), slice.at("ts").get<double>());
    EXPECT_LT(event.at("ts").get<double>(), slice.at("ts").get<double>() + slice.at("dur").get<double>());
  }
}

TEST(Trace, ProcessesAndThreadsHaveNamesAndPlaces) {
  const base::Json trace = base::parse_json(chrome_trace(trace_records(two_stages())), "trace");
  std::map<std::string, int> metadata;
  for (const base::Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") ++metadata[event.at("name")];
  }
  EXPECT_EQ(metadata["process_name"], 4);
  EXPECT_EQ(metadata["process_sort_index"], 4);
  EXPECT_EQ(metadata["thread_name"], metadata["thread_sort_index"]);
}

TEST(Trace, SampleIsOfWholeNodesAndFits) {
  const model::Outline outline = model::outline_of_12_heads(4);
  const cost::CostModel cost = testing::small_cost(outline, {.gpus_per_node = 4});
  std::vector<std::string> loads(16, "30, 40");
  const StepGraph graph =
      build(testing::plan_from_text("16x<1,2,1>", loads, 32), model::parameter_table(outline), cost, 32);
  const auto size_of = [&](const std::vector<int>& ranks) {
    std::vector<TraceCounter> counters;
    const auto uses = memory_over_time(graph, cost, ranks);
    for (size_t i = 0; i < ranks.size(); ++i) {
      for (const MemoryUse& use : uses[i]) counters.push_back({"memory", ranks[i], use.time_ns, use.bytes});
    }
    return static_cast<int64_t>(chrome_trace(trace_records(graph, ranks), counters).size());
  };
  const std::vector<int> all = traced_ranks(graph, 1 << 30);
  EXPECT_EQ(all.size(), 32u);
  for (const int64_t most_bytes : {size_of(all) / 2, size_of(all) / 4}) {
    const std::vector<int> some = traced_ranks(graph, most_bytes);
    EXPECT_LE(size_of(some), most_bytes);
    EXPECT_GT(size_of(some), most_bytes / 4);
    ASSERT_EQ(some.size() % 4, 0u);
    for (size_t i = 0; i < some.size(); i += 4) {
      EXPECT_EQ(some[i] % 4, 0);
      EXPECT_EQ(some[i + 3], some[i] + 3);
    }
  }
  EXPECT_EQ(traced_ranks(graph, 1), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Trace, NoteStandsInTheFile) {
  const base::Json trace = base::parse_json(chrome_trace({}, {}, "4 of \"8\" ranks"), "trace");
  EXPECT_EQ(trace.at("otherData").at("note"), "4 of \"8\" ranks");
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

TEST(Trace, FilesOfBeforeAreReadByTheirNames) {
  std::string bytes = chrome_trace(
      {{.label = "a", .category = "c", .end_ns = 5, .arguments = {{"cp_exchange_ns", 3}, {"fsdp_ns", 2}}}});
  for (const auto& [now, before] :
       {std::pair<std::string, std::string>{"cp_exchange_ns", "ring_ns"}, {"fsdp_ns", "share_ns"}}) {
    ASSERT_NE(bytes.find(now), std::string::npos);
    bytes.replace(bytes.find(now), now.size(), before);
  }
  const Trace trace = parse_chrome_trace(bytes, "trace");
  std::map<std::string, int64_t> arguments;
  for (const auto& [name, value] : trace.records.at(0).arguments) arguments[name] = value;
  EXPECT_EQ(arguments, (std::map<std::string, int64_t>{{"cp_exchange_ns", 3}, {"fsdp_ns", 2}}));
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
  EXPECT_THAT(fault_of("{}"), ::testing::HasSubstr("t.json is no timeline"));
  EXPECT_THAT(fault_of(whole.substr(0, whole.size() - 5)), ::testing::HasSubstr("t.json"));
  std::string damaged = whole;
  damaged.replace(damaged.find("\"dur\":0.005"), 11, "\"dur\":-1.00");
  EXPECT_THAT(fault_of(damaged), ::testing::HasSubstr("t.json:6: 'a' ends before it starts"));
  damaged = whole;
  damaged.replace(damaged.find("\"pid\":0,\"tid\":1,\"name\":\"a\""), 7, "\"pid\":\"x");
  EXPECT_THAT(fault_of(damaged), ::testing::HasSubstr("t.json:6"));
}

}  // namespace
}  // namespace sluice::graph
