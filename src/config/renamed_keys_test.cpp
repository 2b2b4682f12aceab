#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "config/config_file.h"

namespace sluice::config {
namespace {

using testing::HasSubstr;

constexpr const char* kPlainRun = R"([model]
layers = 4
hidden = 128
heads = 4
kv_heads = 2
ffn_hidden = 336
vocab = 2048
[data]
train = ["corpora/stdlib/corpus"]
)";

constexpr const char* kOfBefore = R"([train]
balance_over = "step"
correction_rate = 0.5
[rl]
group = 3
draw = "auto"
aggregate = "sequence"
baseline = "others"
[parallel]
speaking = "1x<1,1,1>"
narrow_products = "int8"
narrow_layers = "fewest"
place_experts = "together"
devices = "alike"
share = false
)";

std::string renamed_fault(const std::string& toml, const std::vector<std::string>& overrides = {},
                          Origin origin = Origin::kUser) {
  try {
    parse_config(toml, "run.toml", overrides, origin);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RenamedKeys, AreRefusedWithTheirNamesOfNow) {
  EXPECT_EQ(renamed_fault(kPlainRun, {"rl.group=4"}),
            "[config] --set: rl.group is now rl.num_generations (`sluice keys renamed` lists all)");
  EXPECT_EQ(renamed_fault(std::string(kPlainRun) + "[watch]\nact = \"tell\"\npath_every = 3\n"),
            "[config] run.toml:11: watch.act is now watch.on_slow; watch.path_every is now "
            "watch.critical_path_every (`sluice keys renamed` lists all)");
}

TEST(RenamedKeys, SectionsAndValuesAreNamed) {
  for (const auto& [setting, told] : std::initializer_list<std::pair<std::string, std::string>>{
           {"parallel.speaking='1x<1,1,1>'", "parallel.speaking is now rl.rollout_strategy ("},
           {"parallel.narrow_products=int8", "parallel.narrow_products is now train.gemm_dtype ("},
           {"parallel.place_experts=loads",
            "parallel.place_experts is now parallel.expert_placement: write parallel.expert_placement = "
            "\"load\""},
           {"parallel.expert_placement=loads", "parallel.expert_placement = \"loads\" is now \"load\""},
           {"parallel.devices=alike", "parallel.devices = \"alike\" is now \"uniform\""},
           {"rl.aggregate=token", "write rl.loss_agg_mode = \"token-mean\""},
           {"rl.aggregate=7", "rl.aggregate is now rl.loss_agg_mode ("}}) {
    EXPECT_THAT(renamed_fault(kPlainRun, {setting}), HasSubstr(told));
  }
  EXPECT_THAT(renamed_fault(std::string("parallel = 3\n") + kPlainRun),
              HasSubstr("unknown section 'parallel'"));
}

TEST(RenamedKeys, AreReadInWhatARunWrote) {
  const RunConfig config = parse_config(std::string(kPlainRun) + kOfBefore, "config.toml", {}, Origin::kRun);
  EXPECT_EQ(config.train.moe_router_load_balancing_type, RouterLoadBalancing::kGlobalAuxLoss);
  EXPECT_EQ(config.train.moe_router_bias_update_rate, 0.5);
  EXPECT_EQ(config.rl.num_generations, 3);
  EXPECT_EQ(config.rl.gen_batch_size, std::nullopt);
  EXPECT_EQ(config.rl.loss_agg_mode, LossAggMode::kSequence);
  EXPECT_EQ(config.rl.baseline, Baseline::kLeaveOneOut);
  EXPECT_EQ(config.parallel.rollout_strategy, "1x<1,1,1>");
  EXPECT_EQ(config.parallel.low_precision_gemms, base::GemmFormat::kInt8);
  EXPECT_EQ(config.parallel.low_precision_layers, LowPrecisionLayers::kMinimal);
  EXPECT_EQ(config.parallel.expert_placement, ExpertPlacementPolicy::kByCoactivation);
  EXPECT_EQ(config.parallel.devices, Devices::kUniform);
  EXPECT_FALSE(config.parallel.fsdp);
  EXPECT_EQ(to_toml(parse_config(to_toml(config), "again")), to_toml(config));
}

TEST(RenamedKeys, ARunsNewNamesCountBeforeOldOnes) {
  const std::string both = std::string(kPlainRun) + "[rl]\ngroup = 3\nnum_generations = 5\n";
  EXPECT_EQ(parse_config(both, "config.toml", {}, Origin::kRun).rl.num_generations, 5);
}

TEST(RenamedKeys, PeopleWriteNamesOfNow) {
  EXPECT_NE(renamed_fault(std::string(kPlainRun) + kOfBefore), "");
  EXPECT_THAT(renamed_fault(std::string(kPlainRun) + kOfBefore, {"rl.group=4"}, Origin::kRun),
              HasSubstr("rl.group is now rl.num_generations"));
}

TEST(RenamedKeys, ARunsFileIsKnownByItsMetrics) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "renamed_keys";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "metrics.jsonl");
  base::write_file_atomically(folder / "config.toml", std::string(kPlainRun) + kOfBefore);
  EXPECT_THROW(read_config(folder / "config.toml"), base::InputError);
  base::write_file_atomically(folder / "metrics.jsonl", "");
  EXPECT_EQ(read_config(folder / "config.toml").rl.num_generations, 3);
  EXPECT_THROW(read_config(folder / "config.toml", {"rl.group=4"}), base::InputError);
}

}  // namespace
}  // namespace sluice::config
