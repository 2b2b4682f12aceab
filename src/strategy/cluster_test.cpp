#include "strategy/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"

namespace sluice::strategy {
namespace {

using base::Json;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Cluster, PresetsSurviveJson) {
  for (const std::string& name : cluster_preset_names()) {
    const Cluster cluster = cluster_preset(name, 3);
    EXPECT_EQ(cluster.name, name);
    EXPECT_EQ(cluster.gpus(), 3 * cluster.gpus_per_node);
    EXPECT_EQ(cluster_from_json(Json::parse(to_json(cluster).dump()), "cluster.json"), cluster);
  }
}

TEST(Cluster, UnknownPresetListsTheKnownOnes) {
  EXPECT_THAT(
      [] { cluster_preset("b300x8", 1); },
      ThrowsMessage<base::InputError>(
          AllOf(HasSubstr("'b300x8'"), HasSubstr("local, a100x8, a800x8, h100x8, h200x8, b200x8, l40sx8"))));
}

TEST(Cluster, NodesBelowOneAreRefused) {
  EXPECT_THAT([] { cluster_preset("a800x8", 0); }, ThrowsMessage<base::InputError>(HasSubstr("nodes is 0")));
}

TEST(ClusterJson, EachFaultNamesFileAndKey) {
  const std::pair<std::function<void(Json&)>, std::string> faults[] = {
      {[](Json& j) { j["schema"] = "x"; }, "schema is 'x'"},
      {[](Json& j) { j.erase("name"); }, "'name' is missing"},
      {[](Json& j) { j["nodes"] = 1.5; }, "'nodes' is 1.5: give a whole number"},
      {[](Json& j) { j["gpus_per_node"] = 0; }, "'gpus_per_node' is 0: give a"},
      {[](Json& j) { j["nodes"] = 1000000; }, "more than 1048576 devices"},
      {[](Json& j) { j["device_memory_bytes"] = -1; }, "'device_memory_bytes' is -1: give a"},
      {[](Json& j) { j["flops_per_ns"] = 0; }, "'flops_per_ns' is 0: give a"},
      {[](Json& j) { j["intra_node"] = 3; }, "intra_node: key 'bytes_per_ns' is missing"},
      {[](Json& j) { j["intra_node"]["bytes_per_ns"] = -2; },
       "intra_node: key 'bytes_per_ns' is -2: give a number"},
      {[](Json& j) { j["inter_node"]["latency_ns"] = -2; }, "inter_node: key 'latency_ns' is -2"},
      {[](Json& j) { j["inter_node"]["latency_ns"] = 1e300; },
       "inter_node: key 'latency_ns' is 1e+300: give a number from 0 to 1e+09"},
      {[](Json& j) { j["host_bytes_per_ns"] = "fast"; }, "'host_bytes_per_ns' is \"fast\": give a number"},
      {[](Json& j) { j.erase("host_memory_bytes"); }, "'host_memory_bytes' is missing"},
      {[](Json& j) { j["nics_per_nod"] = 4; }, "unknown key 'nics_per_nod': did you mean 'nics_per_node'?"},
      {[](Json& j) { j["intra_node"]["latency"] = 4; }, "intra_node: unknown key 'latency'"},
  };
  for (const auto& [make, fault] : faults) {
    Json json = to_json(cluster_preset("a800x8", 2));
    make(json);
    EXPECT_THAT([&] { cluster_from_json(json, "cluster.json"); },
                ThrowsMessage<base::InputError>(AllOf(HasSubstr("cluster.json"), HasSubstr(fault))));
  }
}

TEST(Cluster, EveryDeviceHasItsOwnAdapterUnlessAFileSaysOtherwise) {
  base::Json json = to_json(cluster_preset("a800x8", 2));
  EXPECT_EQ(json.at("nics_per_node"), 8);
  json.erase("nics_per_node");
  EXPECT_EQ(cluster_from_json(json, "file").topology().nic_ranks(), 1);
  json["nics_per_node"] = 2;
  EXPECT_EQ(cluster_from_json(json, "file").topology().nic_ranks(), 4);
  json["nics_per_node"] = 3;
  EXPECT_THROW(cluster_from_json(json, "file"), base::InputError);
}

TEST(Cluster, GroupsOfNodesAreALevelOfTheTopologyEach) {
  Cluster cluster = cluster_preset("h100x8", 32);
  EXPECT_EQ(cluster.topology(), Topology(8, 1));
  EXPECT_FALSE(to_json(cluster).contains("groups"));
  cluster.groups = {{"rack", 4, {20, 15e3}}, {"pod", 16, {10, 30e3}}};
  const Cluster again = cluster_from_json(Json::parse(to_json(cluster).dump()), "file");
  EXPECT_EQ(again, cluster);
  EXPECT_EQ(again.topology(), Topology(8, 1, {32, 128}));
}

TEST(Cluster, GroupsOfNodesAreRefusedWithTheValueAndTheWayOut) {
  const std::pair<std::function<void(Json&)>, std::string> faults[] = {
      {[](Json& j) { j = "pod"; }, "groups is \"pod\": give a list of groups of nodes"},
      {[](Json& j) { j[0].erase("name"); }, "groups[0]: key 'name' is missing"},
      {[](Json& j) { j[1]["nodes"] = 0; }, "groups[1]: key 'nodes' is 0: give a"},
      {[](Json& j) { j[1]["node"] = 1; }, "groups[1]: unknown key 'node': did you mean 'nodes'?"},
      {[](Json& j) { j[0]["nodes"] = 1; },
       "groups[0].nodes is 1 but groups are several of the nodes: give a multiple of 1 above it"},
      {[](Json& j) { j[1]["nodes"] = 10; },
       "groups[1].nodes is 10 but groups are several of the 4 nodes before: give a multiple of 4"},
      {[](Json& j) { j[1]["nodes"] = 1 << 20; }, "groups[1].nodes is 1048576, which are more than"},
      {[](Json& j) { j[1]["between"]["bytes_per_ns"] = 21; },
       "groups[1].between is faster than what joins the nodes inside (20 bytes_per_ns, 15000 latency_ns)"},
      {[](Json& j) { j[0]["between"]["latency_ns"] = 1; }, "groups[0].between is faster"},
  };
  Cluster cluster = cluster_preset("h100x8", 32);
  cluster.groups = {{"rack", 4, {20, 15e3}}, {"pod", 16, {10, 30e3}}};
  for (const auto& [make, fault] : faults) {
    Json json = to_json(cluster);
    make(json["groups"]);
    EXPECT_THAT([&] { cluster_from_json(json, "cluster.json"); },
                ThrowsMessage<base::InputError>(AllOf(HasSubstr("cluster.json"), HasSubstr(fault))));
  }
}

TEST(Cluster, DevicesMultiplyFloatsOf8BitsWhereAFileSaysSo) {
  EXPECT_TRUE(cluster_preset("h100x8", 1).supports_float8);
  base::Json json = to_json(cluster_preset("1x h100x8 + 1x a800x8", 1));
  EXPECT_TRUE(cluster_from_json(json, "file").kinds.front().supports_float8);
  EXPECT_FALSE(cluster_from_json(json, "file").kinds.back().supports_float8);
  for (const char* key : {"nodes", "flops_per_ns", "device_memory_bytes", "device_bytes_per_ns"})
    json.erase(key);
  json.erase("supports_float8");
  json["kinds"][0].erase("supports_float8");
  EXPECT_FALSE(cluster_from_json(json, "file").supports_float8);
}

TEST(Cluster, KeysOfBeforeAreRefusedWithThoseOfNow) {
  base::Json json = to_json(cluster_preset("h100x8", 1));
  json["multiplies_float8"] = true;
  EXPECT_THAT([&] { cluster_from_json(json, "file"); },
              ThrowsMessage<base::InputError>(HasSubstr("file: multiplies_float8 is now supports_float8")));
}

TEST(Cluster, LinkWithoutBandwidthIsRefused) {
  base::Json json = to_json(cluster_preset("h100x8", 2));
  json["inter_node"]["bytes_per_ns"] = 0;
  try {
    cluster_from_json(json, "mine.json");
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_STREQ(error.what(),
                 "mine.json: inter_node: key 'bytes_per_ns' is 0: give a number from 1e-06 to 1e+06");
  }
}

TEST(Cluster, PresetsOfSeveralKinds) {
  const Cluster cluster = cluster_preset("1x a800x8 + 2x h100x8", 7);
  EXPECT_EQ(cluster.nodes, 3);
  EXPECT_EQ(cluster.flops_per_ns, 735e3) << "of the fastest";
  EXPECT_EQ(cluster.inter_node.bytes_per_ns, 20) << "of the slowest";
  const std::vector<Device> devices = devices_of(cluster, 24, 9);
  ASSERT_EQ(devices.size(), 24U);
  EXPECT_EQ(devices[7].slowdown_percent, 293);
  EXPECT_EQ(devices[8].slowdown_percent, 100);
  EXPECT_TRUE(devices_of(cluster_preset("h100x8", 2), 16, 9).empty());
  EXPECT_EQ(cluster_from_json(to_json(cluster), "file"), cluster);
  for (const auto& [name, part] : {std::pair{"h100x8 + a800x8", "says no nodes"},
                                   {"2x h100x8 + 1x b100x8", "'b100x8' is unknown"},
                                   {"1x h100x8 + 1x local", "name kinds whose nodes have as many"},
                                   {"0x h100x8 + 1x a800x8", "nodes is 0"}}) {
    try {
      cluster_preset(name, 1);
      FAIL() << name;
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Cluster, KindsThatContradictTheFileAreRefused) {
  base::Json json = to_json(cluster_preset("1x a800x8 + 2x h100x8", 1));
  for (const char* key :
       {"nodes", "flops_per_ns", "device_memory_bytes", "device_bytes_per_ns", "supports_float8"})
    json.erase(key);
  EXPECT_EQ(cluster_from_json(json, "file").nodes, 3) << "by its kinds";
  json["nodes"] = 4;
  try {
    cluster_from_json(json, "file");
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("nodes is 4, but by its kinds 3"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace sluice::strategy
