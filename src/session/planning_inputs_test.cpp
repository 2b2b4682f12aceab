#include "session/planning_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "corpus/temporary_directory.h"
#include "cost/analytic.h"
#include "cost/model_flops.h"
#include "model/outline.h"
#include "session/sampling.h"
#include "session/strategy_file.h"

namespace sluice::session {
namespace {

class PlanningInputsTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    base::write_file_atomically(folder_ / name, content);
    return (folder_ / name).string();
  }
  PlanningOptions options() {
    PlanningOptions options;
    options.gpus = 16;
    options.model = "llama-7b";
    options.lengths = {file("lengths.txt", "100\n4000\n1\n32\n")};
    return options;
  }
  static std::string fault(const PlanningOptions& options) {
    try {
      resolve_planning(options);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  }

  corpus::TemporaryDirectory folder_;
};

std::string calibration_of(const std::string& model) {
  const std::vector<int> degrees = {1, 2, 4, 8};
  cost::Rates rates;
  rates.inter_node.latency_ns = 12345;
  const cost::Calibration calibration{
      "a machine", "assumed",
      cost::analytic_options(model::named_outline(model), rates, {.device_bytes = int64_t{80} << 30}, degrees,
                             4)};
  return cost::to_json(calibration, {}, 8).dump();
}

using testing::HasSubstr;

TEST_F(PlanningInputsTest, DefaultsAreOneNodeAndTheLongestDocument) {
  PlanningOptions given = options();
  given.gpus = 0;
  const PlanningInputs inputs = resolve_planning(given);
  EXPECT_EQ(inputs.options.gpus, 8);
  EXPECT_EQ(inputs.cluster.name, "a800x8");
  EXPECT_EQ(inputs.calibration.options.memory.host_bytes, int64_t{128} << 30);
  EXPECT_EQ(inputs.options.context_length, 4000);
  EXPECT_EQ(inputs.cost().options().model.layers(), 32);
}

TEST_F(PlanningInputsTest, APresetGetsTheNodesThatTheGpusNeed) {
  PlanningOptions given = options();
  given.gpus = 20;
  EXPECT_EQ(resolve_planning(given).cluster.nodes, 3);
}

TEST_F(PlanningInputsTest, AClusterFileIsTomlOrJsonAndLimitsTheGpus) {
  strategy::Cluster cluster = strategy::cluster_preset("h100x8", 2);
  cluster.name = "mine";
  PlanningOptions given = options();
  given.cluster = file("mine.json", strategy::to_json(cluster).dump());
  EXPECT_EQ(resolve_planning(given).cluster, cluster);
  given.cluster = file("mine.toml", R"(
schema = "sluice.cluster/1"
name = "mine"
nodes = 2
gpus_per_node = 8
device_memory_bytes = 85520809984
flops_per_ns = 735e3
device_bytes_per_ns = 2680
supports_float8 = true
host_bytes_per_ns = 48
host_memory_bytes = 2199023255552
intra_node = {bytes_per_ns = 360, latency_ns = 5e3}
inter_node = {bytes_per_ns = 40, latency_ns = 10e3}
)");
  EXPECT_EQ(resolve_planning(given).cluster, cluster);
  given.gpus = 17;
  EXPECT_THAT(fault(given), HasSubstr("16 GPUs but gpus is 17"));
}

TEST_F(PlanningInputsTest, ACalibrationBringsItsModel) {
  PlanningOptions given = options();
  given.model.clear();
  given.calibration = file("calibration.json", calibration_of("llama-13b"));
  EXPECT_EQ(resolve_planning(given).calibration.options.model.layers(), 40);
  given.model = "llama-7b";
  EXPECT_THAT(fault(given), HasSubstr("is of another model than llama-7b"));
}

TEST_F(PlanningInputsTest, OnlyANamedClusterReplacesTheCalibrationsLinks) {
  PlanningOptions given = options();
  given.calibration = file("calibration.json", calibration_of("llama-7b"));
  EXPECT_EQ(resolve_planning(given).calibration.options.inter.latency_ns, 12345);
  EXPECT_EQ(resolve_planning(given).calibration.options.topology.node_ranks(), 4);
  given.cluster = "a800x8";
  EXPECT_EQ(resolve_planning(given).calibration.options.inter.latency_ns, 10000);
  EXPECT_EQ(resolve_planning(given).calibration.options.topology.node_ranks(), 8);
}

TEST_F(PlanningInputsTest, BatchesTruncateToTheContextAndFollowTheSeed) {
  PlanningOptions given = options();
  given.context_length = 150;
  given.tokens_per_step = 300;
  const PlanningInputs inputs = resolve_planning(given);
  corpus::Sampler sampler = inputs.sampler();
  const corpus::Batch batch = sampler.next();
  EXPECT_EQ(batch.tokens, 282) << "100, 150 of 4000, and 32; the document of one token is left out";
  EXPECT_EQ(inputs.sampler().next(), batch);
  EXPECT_EQ(sequences_of(batch.samples).size(), 3);
}

TEST_F(PlanningInputsTest, NoTokensPerStepMakesOneBatchOfAllDocuments) {
  PlanningOptions given = options();
  given.tokens_per_step = 0;
  corpus::Sampler sampler = resolve_planning(given).sampler();
  EXPECT_EQ(sampler.next().samples.size(), 3);
  EXPECT_EQ(sampler.next().samples.size(), 3);
}

TEST_F(PlanningInputsTest, LengthsMayBeTheCallers) {
  PlanningOptions given = options();
  const PlanningInputs from_file = resolve_planning(given);
  given.lengths.clear();
  EXPECT_EQ(resolve_planning(given, from_file.lengths).sampler().next(), from_file.sampler().next());
  EXPECT_THROW(resolve_planning(given, {}), base::InputError);
  EXPECT_EQ(resolve_machine(given).cluster, from_file.cluster) << "which needs no lengths";
}

TEST_F(PlanningInputsTest, RefusesWithTheValueAndTheWayOut) {
  const auto with = [&](const std::function<void(PlanningOptions&)>& change) {
    PlanningOptions given = options();
    change(given);
    return fault(given);
  };
  EXPECT_THAT(with([](PlanningOptions& o) { o.cluster = "a800x9"; }), HasSubstr("did you mean 'a800x8'"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.model = "llama-8b"; }), HasSubstr("llama-13b"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.model.clear(); }), HasSubstr("no model is given"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.calibration = "analytics"; }),
              HasSubstr("did you mean 'analytic'"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.gpus = -1; }), HasSubstr("gpus is -1"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.context_length = 1; }), HasSubstr("context_length is 1"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.context_length = -5; }), HasSubstr("context_length is -5"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.tokens_per_step = -1; }), HasSubstr("tokens_per_step is -1"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.lengths.clear(); }), HasSubstr("no lengths are given"));
  EXPECT_THAT(with([](PlanningOptions& o) { o.strategies = {"3x<8,1,1>"}; }), HasSubstr("24"));
  EXPECT_THAT(with([&](PlanningOptions& o) { o.lengths = {file("empty.txt", "# none\n")}; }),
              HasSubstr("empty.txt holds no lengths"));
  EXPECT_THAT(with([&](PlanningOptions& o) { o.lengths = {file("bad.txt", "12\n\n-3\n")}; }),
              HasSubstr("bad.txt:3: '-3' is not a length"));
  EXPECT_THAT(with([&](PlanningOptions& o) { o.lengths = {file("short.txt", "1\n1\n")}; }),
              HasSubstr("no document has 2 tokens"));
}

TEST_F(PlanningInputsTest, StrategiesAreTextsOrFilesOfThem) {
  const std::string lines = file("some.txt", "# two\n2x<4,1,1>\n\n<8,1,1> # one pipeline\n");
  const std::string json = file(
      "strategies.json", R"({"schema": "sluice.strategies/1", "strategies": [{"strategy": "8x<1,1,1>"}]})");
  const std::vector<strategy::Strategy> read = read_strategies({"<2,2,1>", lines, json}, 8);
  std::vector<std::string> texts;
  for (const strategy::Strategy& each : read) texts.push_back(to_text(each));
  EXPECT_THAT(texts, testing::ElementsAre("1x<2,2,1>", "2x<4,1,1>", "1x<8,1,1>", "8x<1,1,1>"));
}

TEST_F(PlanningInputsTest, StrategyFilesAreRefusedWithTheirLine) {
  const auto refused = [](const std::string& given) -> std::string {
    try {
      read_strategies({given}, 8);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(file("large.txt", "<1,1,1>\n<16,1,1>\n")), HasSubstr("large.txt:2: "));
  EXPECT_THAT(refused(file("none.txt", "\n")), HasSubstr("holds no strategy"));
  EXPECT_THAT(refused("absent.json"), HasSubstr("'absent.json' is no file and no strategy"));
  EXPECT_THAT(refused(file("a.json", R"({"schema": "sluice.strategies/1", "strategies": [{}]})")),
              HasSubstr("strategies[0]: key 'strategy' is missing"));
}

TEST_F(PlanningInputsTest, ThroughputIsThatOfTheBatchesThatFit) {
  PlanningOptions given = options();
  const PlanningInputs inputs = resolve_planning(given);
  const cost::CostModel cost = inputs.cost();
  const plan::Proposal proposal{.strategy = strategy::parse_strategy("2x<2,1,1>", 4),
                                .max_len_tokens = 500,
                                .frequency = 0.5,
                                .mean_estimated_ns = 2'000'000};
  const plan::PlannerOptions planner{.world_size = 4, .sample_batches = {{400, 200}, {300, 100}, {600, 1}}};
  const base::Json file = strategies_to_json({proposal}, planner, cost, strategy::cluster_preset("a800x8", 1),
                                             {{"context_length", 600}});
  EXPECT_EQ(file.at("context_length"), 600);
  const base::Json& entry = file.at("strategies").at(0);
  EXPECT_EQ(entry.at("gpus"), 4);
  EXPECT_EQ(entry.at("tokens_per_s"), 250'000) << "1000 tokens in 2 steps of 2 ms";
  const double flops =
      cost::ModelFlops(cost.program(), cost.window()).of_sequences(std::vector<int64_t>{400, 200, 300, 100});
  EXPECT_DOUBLE_EQ(entry.at("mfu"), flops / 4e6 / (4 * 312e3));
  EXPECT_FALSE(strategies_to_json({proposal}, planner, cost, strategy::cluster_preset("local", 1),
                                  {{"context_length", 600}})
                   .at("strategies")
                   .at(0)
                   .contains("mfu"))
      << "no data sheet";
}

}  // namespace
}  // namespace sluice::session
