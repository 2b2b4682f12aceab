#include "cost/calibration.h"

#include <gmock/gmock.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "cost/analytic.h"
#include "cost/memory_cost.h"
#include "model/test_outline.h"
#include "model/test_tuning.h"

namespace sluice::cost {
namespace {

using base::Json;
using testing::HasSubstr;
using testing::ThrowsMessage;

Calibration small_calibration() {
  const std::vector<int> degrees = {1, 2, 4};
  return {.hardware = "two cores",
          .source = "analytic",
          .options = analytic_options(model::test_outline(), {}, {.device_bytes = 100'000'000}, degrees, 8)};
}

Json small_json() { return to_json(small_calibration(), {{.tp = 1}, {.tp = 2, .pp = 2}}, 4); }

TEST(Calibration, SurvivesTheFileBitByBit) {
  const Calibration before = small_calibration();
  const Calibration after = calibration_from_json(Json::parse(small_json().dump()), "calibration.json");
  EXPECT_EQ(after.hardware, before.hardware);
  EXPECT_EQ(after.source, before.source);
  EXPECT_EQ(after.options.model, before.options.model);
  EXPECT_EQ(after.options.kinds_by_tp, before.options.kinds_by_tp);
  EXPECT_EQ(after.options.intra, before.options.intra);
  EXPECT_EQ(after.options.inter, before.options.inter);
  EXPECT_EQ(after.options.memory, before.options.memory);
  EXPECT_EQ(after.options.update_ps_per_element, before.options.update_ps_per_element);
  EXPECT_EQ(after.options.topology, before.options.topology);
}

TEST(Calibration, PassesMayBeUnknownButNotWrong) {
  Json unknown = small_json();
  for (Json& layer : unknown["layers"]) layer.erase("decode");
  EXPECT_FALSE(CostModel(calibration_from_json(unknown, "file").options).decodes({}));
  EXPECT_TRUE(CostModel(calibration_from_json(small_json(), "file").options).decodes({}));
  for (const char* rows : {"[]", "[[2, 5], [1, 6]]", "[[1]]", "[[1, -3]]", "[[1, 2.5]]", "7"}) {
    Json json = small_json();
    json["layers"][0]["decode"]["rows"] = Json::parse(rows);
    EXPECT_THROW(calibration_from_json(json, "file"), base::InputError) << rows;
  }
}

TEST(Calibration, FilesOfBeforeAreReadByTheirNames) {
  Json now = small_json();
  Json& layer = now["layers"][0];
  layer["low_precision"]["int8"] = {{"forward", layer["forward"]},
                                    {"backward_input", layer["backward_input"]},
                                    {"backward_weight", layer["backward_weight"]}};
  Json before = now;
  Json& old = before["layers"][0];
  old["narrow"] = old["low_precision"];
  old.erase("low_precision");
  old["decode"]["text"] = old["decode"]["state"];
  old["decode"].erase("state");
  const Calibration read = calibration_from_json(before, "file");
  EXPECT_EQ(read.options.kinds_by_tp, calibration_from_json(now, "file").options.kinds_by_tp);
  EXPECT_NE(read.options.kinds_by_tp, small_calibration().options.kinds_by_tp) << "low precision is known";
}

TEST(Calibration, SharedAdaptersAreKept) {
  Json json = small_json();
  json["gpus_per_nic"] = 2;
  const Calibration calibration = calibration_from_json(json, "file");
  EXPECT_EQ(calibration.options.topology.nic_ranks(), 2);
  EXPECT_EQ(to_json(calibration, {}, 1).at("gpus_per_nic"), 2);
}

TEST(Calibration, HostsTimeOfARingStepIsKept) {
  Json json = small_json();
  EXPECT_FALSE(json.contains("ring_step_ns")) << "only where the host needs some";
  EXPECT_EQ(calibration_from_json(json, "file").options.ring_step_ns, 0);
  json["ring_step_ns"] = 773'000;
  const Calibration calibration = calibration_from_json(json, "file");
  EXPECT_EQ(calibration.options.ring_step_ns, 773'000);
  EXPECT_EQ(to_json(calibration, {}, 1).at("ring_step_ns"), 773'000);
  for (const Json& wrong : {Json(-1), Json(1.5), Json((int64_t{1} << 44) + 1), Json("fast")}) {
    json["ring_step_ns"] = wrong;
    EXPECT_THROW(calibration_from_json(json, "file"), base::InputError) << wrong;
  }
}

TEST(Calibration, LargerGroupsOfNodesAreKept) {
  Json json = small_json();
  EXPECT_FALSE(json.contains("groups"));
  const Json inter = json["links"]["inter"];
  json["groups"] = {{{"ranks", 32}, {"between", inter}},
                    {{"ranks", 64}, {"between", {{"latency_ns", 1'000'000}, {"bytes_per_s", 1000}}}}};
  const Calibration calibration = calibration_from_json(json, "file");
  EXPECT_EQ(calibration.options.topology, strategy::Topology(8, 1, {32, 64}));
  EXPECT_EQ(calibration.options.link(2), calibration.options.inter);
  EXPECT_EQ(calibration.options.link(3), (LinkTimes{1'000'000, 1000}));
  EXPECT_EQ(to_json(calibration, {}, 1).at("groups"), json["groups"]);

  CostModel::Options moved = calibration.options;
  move_to_nodes_of(16, moved);
  EXPECT_EQ(moved.topology, strategy::Topology(16, 1, {32, 64}));
  EXPECT_THAT([&] { move_to_nodes_of(24, moved); },
              ThrowsMessage<base::InputError>(HasSubstr("groups do not fit nodes of 24 ranks")));

  CostModel::Options described = calibration.options;
  described.topology = {16, 1, {64}};
  described.beyond = {{1, int64_t{1} << 40}};
  take_levels(described, moved);
  EXPECT_EQ(moved.topology, strategy::Topology(16, 1, {64}));
  EXPECT_EQ(moved.beyond, std::vector{moved.inter}) << "no faster than inside";

  json["groups"][1]["ranks"] = 48;
  EXPECT_THAT(
      [&] { calibration_from_json(json, "file"); },
      ThrowsMessage<base::InputError>(HasSubstr("groups of 48 ranks are not several whole ones of 32")));
  json["groups"][1]["ranks"] = 64;
  json["groups"][1]["between"]["latency_ns"] = 0;
  EXPECT_THAT([&] { calibration_from_json(json, "file"); },
              ThrowsMessage<base::InputError>(HasSubstr("file: groups[1]: between is faster than")));
}

TEST(Calibration, SchemeRowsCarryThePublishedForm) {
  const Json row = small_json().at("schemes").at(1);
  EXPECT_EQ(row.at("scheme"), "<2,2,1>");
  for (const char* key :
       {"a", "b", "c", "forward_share", "bytes_per_token", "bytes_fixed", "max_len", "util_len"}) {
    EXPECT_GT(row.at(key).get<double>(), 0) << key;
  }
}

TEST(Calibration, FrozenLayersMayTakeNoTimeForWeightGradients) {
  model::Outline outline = model::test_outline();
  model::freeze(outline, {"model.layers.0.*"});
  Calibration before{
      .hardware = "two cores",
      .source = "measured",
      .options = analytic_options(outline, {}, {.device_bytes = 100'000'000}, std::vector{1}, 8)};
  OperationTimes& frozen = before.options.kinds_by_tp.at(1)[1].times;
  frozen.backward_weight = {};
  const Calibration after = calibration_from_json(to_json(before, {}, 1), "calibration.json");
  EXPECT_EQ(after.options.kinds_by_tp, before.options.kinds_by_tp);

  before.options.kinds_by_tp.at(1)[2].times.backward_weight = {};  // these layers are trained
  EXPECT_THROW(calibration_from_json(to_json(before, {}, 1), "calibration.json"), base::InputError);
}

TEST(Calibration, FaultsNameFileAndKey) {
  struct Case {
    std::function<void(Json&)> spoil;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {[](Json& j) { j["layers"][1]["forward"]["a"] = -1.0; }, "layers[1]: forward: key 'a' is -1.0"},
      {[](Json& j) { j["layers"][0]["forward"]["b"] = nullptr; }, "key 'b'"},
      {[](Json& j) {
         j["layers"][0]["head"] = Json{{"a", 0}, {"b", 0}, {"c", 5}};
       },
       "key 'head'"},
      {[](Json& j) { j["layers"][0].erase("backward_input"); }, "key 'backward_input' is missing"},
      {[](Json& j) { j["layers"][1]["tp"] = 3; }, "layers[1]: tp 3 does not divide 4 heads"},
      {[](Json& j) { j["layers"][1]["tp"] = 1; }, "tp 1 stands there twice"},
      {[](Json& j) { j["layers"] = Json::array(); }, "key 'layers' has no entry"},
      {[](Json& j) { j["links"]["inter"]["bytes_per_s"] = 0; }, "links: inter: key 'bytes_per_s' is 0"},
      {[](Json& j) { j["links"]["inter"]["bytes_per_s"] = 823'000'000'000'000; },
       "links: inter: key 'bytes_per_s' is 823000000000000: give at most 10000000000000, which no link "
       "exceeds"},
      {[](Json& j) { j["links"]["intra"]["latency_ns"] = 1.5; }, "key 'latency_ns' is 1.5"},
      {[](Json& j) { j["links"] = 3; }, "calibration.json: links is 3: give an object"},
      {[](Json& j) { j["memory"]["device_bytes"] = 0; }, "memory: key 'device_bytes' is 0"},
      {[](Json& j) { j.erase("hardware"); }, "key 'hardware' is missing"},
      {[](Json& j) { j["schema"] = "sluice.plan/1"; }, "schema"},
  };
  for (const Case& c : cases) {
    Json json = small_json();
    c.spoil(json);
    try {
      calibration_from_json(json, "calibration.json");
      ADD_FAILURE() << "accepted: " << c.expected;
    } catch (const base::InputError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("calibration.json"), std::string::npos) << message;
      EXPECT_NE(message.find(c.expected), std::string::npos) << message << "\nexpected " << c.expected;
    }
  }
}

TEST(Calibration, ModelsThatCostTheSameAreOfOne) {
  const Calibration calibration = small_calibration();
  model::Outline outline = calibration.options.model.outline();
  outline.family = "mistral";
  outline.norm_eps = 1e-6;
  outline.rope.theta *= 2;
  EXPECT_EQ(model_fault(calibration, outline), "");
  outline.window = 4096;
  EXPECT_EQ(model_fault(calibration, outline), "window is 4096, there 0");
  outline = calibration.options.model.outline();
  outline.layers = 3;
  outline.hidden *= 2;
  const std::string fault = model_fault(calibration, outline);
  EXPECT_NE(fault.find("layers is 3, there 4"), std::string::npos) << fault;
  EXPECT_NE(fault.find("hidden is "), std::string::npos) << fault;
}

Calibration small_table() {
  Calibration table = small_calibration();
  table.options.kinds_by_tp.clear();
  for (const auto& [tp, pp] : {std::pair{1, 1}, {1, 2}, {2, 1}, {4, 1}}) {
    table.options.scheme_times[{tp, pp}] = {.stage = Quadratic::from_ns(1.3 / (tp * pp), 17.1, 1000),
                                            .saved_bytes_per_token = 4099 / tp,
                                            .util_len_tokens = 384};
  }
  table.options.memory.layer_parameters = 1001;
  table.options.memory.end_parameters = 77;
  return table;
}

TEST(Calibration, TableSurvivesTheFileBitByBit) {
  const Calibration before = small_table();
  const Json json = to_json(before, {}, 4);
  EXPECT_FALSE(json.contains("layers"));
  const Calibration after = calibration_from_json(Json::parse(json.dump()), "table.json");
  EXPECT_EQ(after.options.scheme_times, before.options.scheme_times);
  EXPECT_EQ(after.options.memory, before.options.memory);
  EXPECT_EQ(after.options.model, before.options.model);
  EXPECT_TRUE(after.options.kinds_by_tp.empty());
}

TEST(Calibration, TableFaultsNameTheRow) {
  struct Case {
    std::function<void(Json&)> spoil;
    const char* expected;
  };
  const std::vector<Case> cases = {
      {[](Json& rows) { rows[1]["a"] = 0; },
       "schemes: the row of <1,2,1> is degenerate: a times its GPUs is 0"},
      {[](Json& rows) { rows[2]["a"] = 1.3; }, "the row of <2,1,1> is degenerate"},
      {[](Json& rows) { rows[1]["scheme"] = "<1,3,1>"; },
       "schemes[1]: <1,3,1>: 3 stages do not divide 4 layers"},
      {[](Json& rows) { rows[1]["scheme"] = "<3,1,1>"; }, "schemes[1]: <3,1,1>: tp 3 does not divide"},
      {[](Json& rows) { rows[1]["scheme"] = "<1,2,2>"; }, "<1,2,2>: rows have one lane"},
      {[](Json& rows) { rows[1]["scheme"] = "<1,1,1>"; }, "<1,1,1> stands there twice"},
      {[](Json& rows) { rows[1]["forward_share"] = 0.4; }, "schemes[1]: <1,2,1>: key 'forward_share' is 0.4"},
      {[](Json& rows) { rows[1]["b"] = -1; }, "schemes[1]: key 'b' is -1"},
      {[](Json& rows) { rows[1].erase("util_len"); }, "schemes[1]: key 'util_len' is missing"},
      {[](Json& rows) { rows[1]["bytes_per_token"] = 0; }, "schemes[1]: key 'bytes_per_token' is 0"},
      {[](Json& rows) { rows = Json::array(); }, "without 'layers', key 'schemes' needs rows"},
  };
  for (const Case& c : cases) {
    Json json = to_json(small_table(), {}, 4);
    c.spoil(json["schemes"]);
    try {
      calibration_from_json(json, "table.json");
      ADD_FAILURE() << "accepted: " << c.expected;
    } catch (const base::InputError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find("table.json"), 0U) << message;
      EXPECT_NE(message.find(c.expected), std::string::npos) << message << "\nexpected " << c.expected;
    }
  }
}

TEST(Analytic, LayerTimesAreFlopsOverRates) {
  const Rates rates{.product_flops_per_ns = 10,
                    .attention_forward_flops_per_ns = 4,
                    .attention_backward_flops_per_ns = 5,
                    .elementwise_bytes_per_ns = 8,
                    .layer_overhead_ns = 1000,
                    .collective = {.bytes_per_ns = 2, .latency_ns = 70}};
  const std::vector<int> degrees = {1, 2};
  const CostModel::Options options =
      analytic_options(model::test_outline(), rates, {.device_bytes = 1}, degrees, 8);
  // Matrix elements: qkv 128·(128 + 128), output 128·128, MLP 3·128·336.
  const double products = 2.0 * (128 * 256 + 128 * 128 + 3 * 128 * 336) / 10;
  const double elementwise = 4.0 * (10 * 128 + 2 * (128 + 64) + 3 * 336) / 8;
  const OperationTimes& one = options.kinds_by_tp.at(1)[1].times;
  EXPECT_EQ(one.forward, Quadratic::from_ns(2.0 * 128 / 4, products + elementwise, 1000));
  EXPECT_EQ(one.backward_input, Quadratic::from_ns(5.0 * 128 / 5, products + 2 * elementwise, 1000));
  EXPECT_EQ(one.backward_weight, Quadratic::from_ns(0, products, 1000));
  const double gathers = 4 * (4.0 * 128 / 2) / 2;
  const OperationTimes& two = options.kinds_by_tp.at(2)[1].times;
  EXPECT_EQ(two.forward,
            Quadratic::from_ns(128.0 / 4, products / 2 + elementwise / 2 + gathers, 1000 + 4 * 70));
}

TEST(Analytic, WideModelOnASlowMachineIsTheUsersFault) {
  model::Outline outline = model::test_outline();
  outline.hidden = 1'000'000;
  outline.ffn_hidden = 10'000'000;
  const std::vector<int> degrees = {1};
  try {
    analytic_options(outline, {.product_flops_per_ns = 30}, {.device_bytes = 1}, degrees, 8);
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("hidden 1000000"), std::string::npos) << error.what();
  }
}

TEST(Analytic, LayerBytesCountKeyHeadsThatRanksRepeat) {
  // Two key heads on four ranks: a rank has a head of 32 for queries, keys and values, and 84 of the MLP.
  const model::Program program(model::test_outline());
  const model::TokenBytes bytes = program.kind_at(1).bytes({4}, 4);
  EXPECT_EQ(bytes.saved, 2 * (128 * 4 + 4) / 4 + (96 + 32 + 2 * 84) * 4 + 4);
  EXPECT_EQ(bytes.deferred, 4 * 128 * 4 / 4 + (96 + 32 + 3 * 84) * 4 - bytes.saved);
  EXPECT_EQ(bytes.forward, 4 * (84 + 128));
  EXPECT_EQ(bytes.backward, 4 * (128 + 84 + 128 + 32));
  EXPECT_EQ(program.kinds().back()->bytes({4}, 4).transient(), 4 * 4 * 128);
  // Statistics stay at four bytes in 16 bits.
  EXPECT_EQ(program.kind_at(1).bytes({1}, 2).saved,
            2 * (128 * 2 + 4) + (128 + 2 * 64 + 128 + 2 * 336) * 2 + 4 * 4);
}

TEST(Analytic, PresetsGiveUsableModels) {
  const model::Outline outline = model::named_outline("llama-7b");
  const strategy::Cluster cluster = strategy::cluster_preset("a800x8", 2);
  const std::vector<int> degrees = {1, 2, 4, 8};
  const CostModel cost(analytic_options(
      outline, rates_of(cluster),
      {.device_bytes = cluster.device_memory_bytes, .element_bytes = 2, .owner_bytes_per_parameter = 16},
      degrees, cluster.gpus_per_node));
  int64_t shorter = 0;
  for (const int tp : degrees) {
    const int64_t holds = MemoryCost(cost, {.tp = tp}).max_len_tokens(16);
    EXPECT_GT(holds, shorter) << "tp " << tp;
    shorter = holds;
  }
  // Half of the peak on 6·N FLOPs a token of 4096: within a factor of two.
  const std::vector<int64_t> lengths = {4096};
  const double expected_ns = 6.0 * 6.7e9 * 4096 / 156e3 / 8;
  const auto measured_ns = static_cast<double>(cost.stage_times({.tp = 8}, 0).of_sequences(lengths));
  EXPECT_GT(measured_ns, expected_ns);
  EXPECT_LT(measured_ns, 2.5 * expected_ns);
}

}  // namespace
}  // namespace sluice::cost
