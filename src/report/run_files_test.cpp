#include "report/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "graph/test_graphs.h"
#include "report/run_summary.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunFiles : public ::testing::Test {
 protected:
  RunFiles() { fs::create_directories(directory_); }
  ~RunFiles() override { fs::remove_all(directory_); }

  void write(const std::string& name, const std::string& bytes) const {
    base::write_file_atomically(directory_ / name, bytes);
  }
  std::string fault() const {
    try {
      read_run(directory_);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path directory_ =
      fs::temp_directory_path() / base::text("sluice-run-files-", ::getpid(), "-",
                                             ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

constexpr const char* kStep =
    R"({"step":0,"loss":7.5,"tokens":80,"sequences":2,"strategy":"4x<1,1,1>","time_ms":2.5,"predicted_ms":2,"gap_ppm":3,"peak_bytes":900,"predicted_peak_bytes":1000})";
constexpr const char* kSimulated = R"({"schema": "sluice.simulation/1", "ranks": 4, "hardware": "a800x8",
  "facts": {"cluster": "4 GPUs", "model": "small"}, "lengths": [[10, 3], [900, 1]],
  "systems": {"sluice": {"title": "Sluice"}, "megatron": {"title": "Megatron-LM", "configuration": "DP4"},
              "flexsp": {"title": "FlexSP", "infeasible": "too long"}}})";

std::string small_trace() {
  const graph::testing::RandomCase random = graph::testing::random_case(3);
  return graph::chrome_trace(
      graph::trace_records(graph::build(random.plan, random.table, random.cost, random.world_size)),
      {{"memory", 0, 10, 500}, {"memory", 0, 20, 400}});
}

TEST_F(RunFiles, TrainingRunBringsStepsAndEvaluations) {
  write(
      "metrics.jsonl",
      base::text(kStep, "\n", R"({"step":0,"validation_loss":7.25,"targets":9,"recall_at_10":0.5,"f1":null})",
                 "\n", R"({"step":1,"time_ms":2.5,"fallback":"no <room>","unfused_attention":7})", "\n"));
  write("rank-0.log", "");
  write("rank-1.log", "");
  write("calibration.json", R"({"hardware": "2 x CPU", "source": "measured"})");
  write("config.toml", "[model]\nlayers = 4\n[memory]\ndevice_gib = 2\n");
  write("trace-0.json", small_trace());
  write("trace-0-predicted.json", small_trace());
  const RunData data = read_run(directory_);
  EXPECT_FALSE(data.simulated);
  ASSERT_EQ(data.systems.size(), 1u);
  const StepRecord& step = data.systems[0].steps.at(0);
  EXPECT_EQ(step.time_ns, 2'500'000);
  EXPECT_EQ(step.predicted_ns, 2'000'000);
  EXPECT_EQ(step.predicted_peak_bytes, 1000);
  EXPECT_EQ(step.loss, 7.5);
  EXPECT_EQ(step.fallback, "");
  EXPECT_EQ(data.systems[0].steps.at(1).fallback, "no <room>");
  EXPECT_EQ(data.systems[0].steps.at(1).unfused_attention, 7);
  EXPECT_NE(verdict_of(data).detail.find("calls for attention were left to plain operators"),
            std::string::npos);
  EXPECT_EQ(data.evaluations.at(0).validation_loss, 7.25);
  ASSERT_EQ(data.evaluations.at(0).figures.size(), 1u);
  EXPECT_EQ(data.evaluations.at(0).figures.front(), std::pair(std::string("recall_at_10"), 0.5));
  EXPECT_EQ(data.hardware, "2 x CPU");
  EXPECT_EQ(data.device_bytes, int64_t{2} << 30);
  ASSERT_EQ(data.timelines.size(), 2u);
  EXPECT_TRUE(data.timelines[0].measured);
  EXPECT_FALSE(data.timelines[1].measured);
  EXPECT_EQ(data.timelines[0].peak_bytes.at(0), 500);
  write_report(directory_, directory_ / "report.html");
  EXPECT_THAT(base::read_file(directory_ / "report.html"), HasSubstr("id=\"timeline\""));
  EXPECT_THAT(base::read_file(directory_ / "report.html"),
              HasSubstr("own plan, step 1 the first: no &lt;room&gt;."));
}

TEST_F(RunFiles, ElasticRunTellsOfItsEpochs) {
  write("metrics.jsonl", R"({"step":0,"time_ms":2.5,"epoch":0,"ranks":4,"snapshot_bytes":4000000})"
                         "\n"
                         R"({"step":1,"time_ms":2.5,"epoch":2,"ranks":3})"
                         "\n");
  write("trace-1.json", small_trace());
  for (const char* log : {"rank-0.log", "rank-1.log", "rank-2.log", "rank-3.log"}) write(log, "");
  const RunData data = read_run(directory_);
  EXPECT_EQ(data.timelines.at(0).title, "Step 1, measured, membership 2 of 3 ranks");
  const auto fact = [&](const std::string& name) {
    const auto found = std::ranges::find(data.facts, name, &std::pair<std::string, std::string>::first);
    return found == data.facts.end() ? "" : found->second;
  };
  EXPECT_EQ(fact("memberships"), "4 ranks, from step 2 on 3");
  EXPECT_THAT(fact("snapshots"),
              HasSubstr("1 beside steps, 3.81 MiB to replicas each, 3.81 MiB of host memory"));
}

TEST_F(RunFiles, SimulatedRunBringsItsSystems) {
  write("simulation.json", kSimulated);
  write(
      "metrics.jsonl",
      R"({"step":0,"system":"sluice","time_ms":2,"rank_time_ns":{"compute":7000000,"idle":1000000,"pull_push":5}})"
      "\n"
      R"({"step":0,"system":"megatron","time_ms":4})"
      "\n");
  write("trace-0-megatron.json", small_trace());
  write("trace-0-unknown.json", "not read");
  const RunData data = read_run(directory_);
  EXPECT_TRUE(data.simulated);
  ASSERT_EQ(data.systems.size(), 3u);
  EXPECT_EQ(data.systems[0].steps.at(0).shares.compute_ns, 7'000'000);
  EXPECT_EQ(data.systems[1].configuration, "DP4");
  EXPECT_EQ(data.systems[1].steps.at(0).time_ns, 4'000'000);
  EXPECT_EQ(data.systems[2].infeasible, "too long");
  EXPECT_EQ(data.lengths.documents(), 4);
  EXPECT_EQ(data.facts.at(1).second, "small");
  ASSERT_EQ(data.timelines.size(), 1u);
  EXPECT_EQ(data.timelines[0].title, "Megatron-LM, step 0");
}

TEST_F(RunFiles, SimulationsOfBeforeAreReadByTheirNames) {
  std::string file = kSimulated;
  file.insert(file.find("\"title\": \"Sluice\""), "\"mean_step_ns_measured_passes\": 77, ");
  write("simulation.json", file);
  write(
      "metrics.jsonl",
      R"({"step":0,"system":"sluice","time_ms":2,"rank_time_ns":{"ring":1,"gather":2,"link":3,"between":4}})"
      "\n");
  const RunData data = read_run(directory_);
  EXPECT_EQ(data.systems[0].measured_passes_step_ns, 77);
  const TimeShares& shares = data.systems[0].steps.at(0).shares;
  EXPECT_EQ(std::tuple(shares.cp_exchange_ns, shares.fsdp_ns, shares.pull_push_ns, shares.strategy_switch_ns),
            std::tuple(1, 2, 3, 4));
}

TEST_F(RunFiles, RunThatGoesOnShowsWhatIsThere) {
  write("metrics.jsonl", base::text(kStep, "\n", std::string(kStep).substr(0, 40)));
  EXPECT_EQ(read_run(directory_).systems[0].steps.size(), 1u);
}

TEST_F(RunFiles, NothingToShowIsAnError) {
  EXPECT_THAT(fault(), HasSubstr("metrics.jsonl is missing"));
  write("metrics.jsonl", "");
  EXPECT_THAT(fault(), HasSubstr("holds no step yet"));
}

TEST_F(RunFiles, DamagedFilesAreNamedWithLineAndValue) {
  write("metrics.jsonl", base::text(std::string(kStep).substr(0, 40), "\n", kStep, "\n"));
  EXPECT_THAT(fault(), HasSubstr("metrics.jsonl:1"));
  write("metrics.jsonl", "{\"step\":0,\"time_ms\":-4}\n");
  EXPECT_THAT(fault(), HasSubstr("metrics.jsonl:1: key 'time_ms' is -4"));
  write("metrics.jsonl", "[1, 2]\n");
  EXPECT_THAT(fault(), HasSubstr("metrics.jsonl:1: key 'step' is missing"));
  write("metrics.jsonl", base::text(kStep, "\n"));
  write("trace-7.json", "{}");
  EXPECT_THAT(fault(), HasSubstr("trace-7.json is no timeline"));
  fs::remove(directory_ / "trace-7.json");
  write("config.toml", "[model\n");
  EXPECT_THAT(fault(), HasSubstr("config.toml:1"));
  fs::remove(directory_ / "config.toml");
  write("simulation.json", kSimulated);
  EXPECT_THAT(fault(), HasSubstr("metrics.jsonl:1: key 'system' is missing"));
  write("metrics.jsonl", "{\"step\":0,\"system\":\"other\",\"time_ms\":4}\n");
  EXPECT_THAT(fault(), HasSubstr("has no system 'other'"));
}

}  // namespace
}  // namespace sluice::report
