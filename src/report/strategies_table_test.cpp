#include "report/strategies_table.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace sluice::report {
namespace {

TEST(StrategiesTable, ShowsWhatThereIs) {
  const base::Json file = base::parse_json(R"({
    "schema": "sluice.strategies/1",
    "context_length": 32768,
    "strategies": [
      {"strategy": "4x<8,2,1>", "max_len": 65536, "frequency": 0.75, "longest": [9001, 32768], "mean_estimated_ns": 1290000000,
       "gpus": 64, "tokens_per_s": 155000, "mfu": 0.447, "peak_bytes": 69447273677},
      {"strategy": "60x<1,1,1>", "max_len": 9000, "frequency": 0.25, "mean_estimated_ns": 0}],
    "inputs": {"gpus": 64, "tokens_per_step": 200000, "lengths": {"count": 5000}, "calibration": {"name": "analytic"}}
  })",
                                           "file");
  EXPECT_EQ(strategies_table(file, "file"), R"(2 strategies, context 32,768 tokens
for 64 GPUs, 200,000 tokens a step of 5,000 documents; calibration analytic
 steps  longest sequences  GPUs  max sequence length  mean step  tokens/s     MFU  GiB per device  strategy
75.0 %    9,001 to 32,768    64               65,536     1.29 s   155,000  44.7 %            64.7  4x tp8,pp2
25.0 %                                         9,000          -                                    60x tp1
)");
}

// Both assumptions about gathers between nodes, where they come to different times.
TEST(StrategiesTable, ShowsBothTimesWhereTheyDiffer) {
  const base::Json file = base::parse_json(R"({
    "schema": "sluice.strategies/1",
    "context_length": 32768,
    "strategies": [
      {"strategy": "1x<1,1,64,64>", "mean_estimated_ns": 2900000000, "mean_estimated_ns_measured_passes": 5800000000},
      {"strategy": "1x<1,1,64,8>", "mean_estimated_ns": 3090000000, "mean_estimated_ns_measured_passes": 3090000000}]
  })",
                                           "file");
  EXPECT_EQ(strategies_table(file, "file"), R"(2 strategies, context 32,768 tokens
steps  longest sequences  GPUs  max sequence length  mean step  as measured  tokens/s  strategy
                                                        2.90 s       5.80 s            cp64,fsdp64
                                                        3.09 s       3.09 s            cp64,fsdp8
mean step: gathers between nodes overlap with computation as the clock predicts; as measured: they cost what FlexSP measured
)");
}

TEST(StrategiesTable, SaysWhereFewerBitsBetweenRanksPay) {
  const base::Json file = base::parse_json(R"({
    "schema": "sluice.strategies/1",
    "context_length": 8192,
    "strategies": [{"strategy": "1x<1,1,16,16>", "mean_estimated_ns": 3000000000}],
    "codecs": {"settings": ["link.push = \"int8\"", "link.gather = \"int8\""], "strategy": "1x<1,1,16,16>",
               "mean_step_ns": 2000000000, "wide_mean_step_ns": 3100000000}
  })",
                                           "file");
  const std::string shown = strategies_table(file, "file");
  EXPECT_TRUE(shown.ends_with(
      "fewer bits between ranks pay: with link.push = \"int8\" and link.gather = \"int8\" a mean "
      "step of cp16,fsdp16 takes 2.00 s instead of 3.10 s\n"))
      << shown;
}

TEST(StrategiesTable, NamesTheFileOfAWrongValue) {
  const base::Json file = {{"strategies", {{{"strategy", 3}}}}};
  try {
    strategies_table(file, "mine.json");
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("mine.json: key 'strategy'"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice::report
