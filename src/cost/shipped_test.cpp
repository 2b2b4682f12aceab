#include "cost/shipped.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "cost/analytic.h"
#include "cost/embedded.h"
#include "cost/memory_cost.h"
#include "cost/table_figures.h"
#include "model/outline.h"

namespace sluice::cost {
namespace {

using base::Json;
using strategy::Scheme;

Json shipped_json(const std::string& name) {
  for (const EmbeddedFile& file : calibration_files()) {
    if (file.name == name) return base::parse_json(file.content, name);
  }
  return {};
}

std::string message_of(const Json& json) {
  try {
    calibration_from_json(json, "table.json");
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Shipped, NamesAreThoseOfTheData) {
  EXPECT_EQ(shipped_names(), (std::vector<std::string>{"a100-7b", "a800-13b", "a800-32b", "a800-7b",
                                                       "h100-13b", "h100-32b", "h100-7b"}));
}

TEST(Shipped, ModelsAreTheNamedShapes) {
  for (const std::string& name : shipped_names()) {
    const model::Outline outline = model::named_outline("llama-" + name.substr(name.find('-') + 1));
    EXPECT_EQ(shipped(name).options.model, outline) << name;
  }
}

TEST(Shipped, UnknownNameListsTheKnownOnes) {
  for (const auto& find : {shipped, find_calibration}) {
    try {
      find("b200-7b");
      ADD_FAILURE();
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find("'b200-7b' is shipped: choose a100-7b, "), std::string::npos);
    }
  }
}

TEST(Shipped, TimesAreNanoseconds) {
  // Published: 3.73416233e-06 ms, 2.13060059e-01 ms, 80.71665943745563 ms.
  const CostModel cost(shipped("a800-32b").options);
  EXPECT_EQ(cost.stage_times({2, 2}, 0), Quadratic::from_ns(3.73416233, 213060.059, 80'716'659));
  EXPECT_EQ(cost.stage_times({2, 2}, 1), cost.stage_times({2, 2}, 0));
}

TEST(Shipped, TablesWithoutOneTpRankDeriveIt) {
  const CostModel::Options options = shipped("a800-32b").options;
  const auto& rows = options.scheme_times;
  // The rows <2,2>, <2,4> and <2,6> have 14.94, 15.76 and 15.79 as a times GPUs: the median is <2,4>'s.
  const Quadratic from = rows.at({2, 4}).stage;
  EXPECT_EQ(rows.at({1, 1}).stage, (Quadratic{from.a * 8, from.b * 8, from.c_ns * 4}));
  EXPECT_EQ(rows.at({1, 4}).stage, (Quadratic{from.a * 2, from.b * 2, from.c_ns}));
  EXPECT_EQ(rows.at({1, 1}).saved_bytes_per_token, 8 * rows.at({2, 4}).saved_bytes_per_token);
  const CostModel cost(options);
  EXPECT_TRUE(is_derived(cost, {1, 1}));
  EXPECT_FALSE(is_derived(cost, {2, 2}));
  // Published rows stay.
  EXPECT_FALSE(is_derived(CostModel(shipped("a800-7b").options), {1, 2}));
}

// The file that lab/evaluation/h100_calibrations.cpp writes.
TEST(Shipped, H100IsWhatTheMeasuredTablesMakeOfIt) {
  strategy::Cluster cluster = strategy::cluster_preset("h100x8", 1);
  cluster.name = "h100-flash-attention-2";
  cluster.intra_node = rates_of_devices(cluster).collective;
  const std::vector<int> degrees = {1, 2, 4, 8};
  for (const char* size : {"7b", "13b", "32b"}) {
    const CostModel::Options options = shipped(std::string("h100-") + size).options;
    const Calibration made{
        "H100", "tables",
        analytic_options(model::named_outline(std::string("llama-") + size), rates_of(cluster),
                         {.device_bytes = cluster.device_memory_bytes / 10 * 9, .element_bytes = 2}, degrees,
                         cluster.topology())};
    const CostModel::Options expected = calibration_from_json(to_json(made, {}, 8), "made").options;
    EXPECT_EQ(options.kinds_by_tp, expected.kinds_by_tp) << size;
    EXPECT_EQ(options.intra, expected.intra) << size;
    EXPECT_EQ(options.inter, expected.inter) << size;
    EXPECT_EQ(options.memory, expected.memory) << size;
  }
}

TEST(Shipped, LinksAreThoseOfTheClusterPresets) {
  for (const std::string& name : shipped_names()) {
    if (shipped(name).options.scheme_times.empty()) continue;
    const strategy::Cluster cluster = strategy::cluster_preset(name.substr(0, 4) + "x8", 1);
    const CostModel::Options expected =
        analytic_options(model::named_outline("llama-7b"), rates_of(cluster), {}, std::vector<int>{1}, 8);
    const CostModel::Options options = shipped(name).options;
    EXPECT_EQ(options.intra, expected.intra) << name;
    EXPECT_EQ(options.inter, expected.inter) << name;
    EXPECT_EQ(options.update_ps_per_element, expected.update_ps_per_element) << name;
    EXPECT_EQ(options.topology.node_ranks(), cluster.gpus_per_node) << name;
  }
}

TEST(Shipped, RefusedRowsAreRefusedAndTheOthersAreNot) {
  size_t refused = 0;
  for (const std::string& name : shipped_names()) {
    const Json json = shipped_json(name);
    EXPECT_EQ(message_of(json), "");
    for (const Json& row : json.value("refused", Json::array())) {
      Json with_row = json;
      with_row["schemes"].push_back(row);
      const std::string message = message_of(with_row);
      const std::string expected = "the row of " + row.at("scheme").get<std::string>() + " is degenerate";
      EXPECT_NE(message.find(expected), std::string::npos) << name << ": " << message;
      ++refused;
    }
  }
  EXPECT_EQ(refused, 6U);
}

// Results of get_strategy_max_seqlen in Hydraulis' planner if the optimizer states are spread evenly over
// `gpus`, with negative values as 0. It computes in doubles.
struct Published {
  const char* name;
  int gpus;
  struct Row {
    int tp, pp;
    int64_t max_len;
  };
  std::vector<Row> rows;
};
const std::vector<Published> kPublished = {
    {"a100-7b",
     16,
     {{1, 2, 356},
      {1, 8, 2347},
      {2, 1, 695},
      {2, 2, 3442},
      {2, 4, 4735},
      {4, 1, 6393},
      {4, 2, 8944},
      {8, 1, 15653}}},
    {"a100-7b",
     8,
     {{1, 2, 0},
      {1, 8, 1290},
      {2, 1, 0},
      {2, 2, 1381},
      {2, 4, 2675},
      {4, 1, 2566},
      {4, 2, 5117},
      {8, 1, 8956}}},
    {"a800-7b",
     16,
     {{1, 2, 10730},
      {1, 4, 12145},
      {1, 8, 12852},
      {2, 1, 20911},
      {2, 2, 23766},
      {2, 4, 25144},
      {2, 8, 25833},
      {4, 1, 44136},
      {4, 2, 46788},
      {4, 4, 48068},
      {8, 1, 81879},
      {8, 2, 84198},
      {16, 1, 132509}}},
    {"a800-7b",
     32,
     {{1, 2, 11280},
      {1, 4, 12694},
      {1, 8, 13402},
      {2, 1, 21981},
      {2, 2, 24836},
      {2, 4, 26215},
      {2, 8, 26904},
      {4, 1, 46125},
      {4, 2, 48776},
      {4, 4, 50056},
      {8, 1, 85358},
      {8, 2, 87678},
      {16, 1, 137985}}},
    {"a800-13b",
     16,
     {{1, 2, 4196},
      {1, 4, 5964},
      {1, 8, 6848},
      {2, 1, 8177},
      {2, 2, 11702},
      {2, 4, 13425},
      {2, 8, 14286},
      {4, 1, 23404},
      {4, 2, 26928},
      {4, 4, 28651},
      {8, 1, 43759}}},
    {"a800-13b",
     32,
     {{1, 2, 4874},
      {1, 4, 6643},
      {1, 8, 7527},
      {2, 1, 9499},
      {2, 2, 13023},
      {2, 4, 14746},
      {2, 8, 15608},
      {4, 1, 26047},
      {4, 2, 29572},
      {4, 4, 31295},
      {8, 1, 48054}}},
    {"a800-32b",
     32,
     {{2, 2, 3163},
      {2, 4, 5486},
      {2, 6, 6260},
      {4, 1, 6156},
      {4, 2, 10731},
      {4, 4, 12991},
      {4, 6, 13744},
      {8, 1, 18908},
      {8, 2, 22938},
      {8, 3, 24265},
      {8, 4, 24929},
      {16, 1, 38536}}},
    {"a800-32b",
     64,
     {{2, 2, 4045},
      {2, 4, 6368},
      {2, 6, 7142},
      {4, 1, 7872},
      {4, 2, 12447},
      {4, 4, 14707},
      {4, 6, 15460},
      {8, 1, 21930},
      {8, 2, 25961},
      {8, 3, 27288},
      {8, 4, 27951},
      {16, 1, 43614}}},
    {"a800-32b",
     1024,
     {{2, 2, 4872},
      {2, 4, 7194},
      {2, 6, 7968},
      {4, 1, 9480},
      {4, 2, 14055},
      {4, 4, 16315},
      {4, 6, 17068},
      {8, 1, 24764},
      {8, 2, 28794},
      {8, 3, 30122},
      {8, 4, 30785},
      {16, 1, 48375}}},
};

TEST(Shipped, LongestMicroBatchesArePublishedToTheToken) {
  for (const Published& table : kPublished) {
    const CostModel cost(shipped(table.name).options);
    const auto is_published = [](const auto& row) { return !row.second.derived; };
    EXPECT_EQ(std::ranges::count_if(cost.options().scheme_times, is_published), std::ssize(table.rows));
    for (const auto& [tp, pp, max_len] : table.rows) {
      const Scheme scheme{tp, pp};
      EXPECT_NEAR(static_cast<double>(MemoryCost(cost, scheme).max_len_tokens(table.gpus)),
                  static_cast<double>(max_len), 1)
          << table.name << " " << to_text(scheme) << " of " << table.gpus;
    }
  }
}

}  // namespace
}  // namespace sluice::cost
