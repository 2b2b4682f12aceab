#include "profile/device.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "profile/machine.h"

namespace sluice::profile {
namespace {

transport::Launch four_local_ranks() {
  transport::Launch launch;
  launch.world_size = launch.local_size = 4;
  launch.rank = launch.local_rank = 3;
  return launch;
}

RankDevice as_one_of_four(const config::TrainConfig& train, const config::MemoryConfig& memory) {
  const transport::Launch launch = four_local_ranks();
  return rank_device(train, memory, launch, alike_cards(train, launch), launch.rank);
}

TEST(RankDevice, GivenFiguresAreTaken) {
  config::TrainConfig train;
  train.device = config::DeviceChoice::kCpu;
  train.threads = 3;
  config::MemoryConfig memory;
  memory.device_gib = 5;
  memory.margin_gib = 2;
  const RankDevice found = as_one_of_four(train, memory);
  EXPECT_TRUE(found.device.is_cpu());
  EXPECT_EQ(found.threads, 3);
  EXPECT_EQ(found.memory_bytes, int64_t{3} << 30);
}

TEST(RankDevice, LocalRanksShareCores) {
  config::TrainConfig train;
  train.device = config::DeviceChoice::kCpu;
  config::MemoryConfig memory;
  memory.margin_gib = 0;
  const RankDevice found = as_one_of_four(train, memory);
  EXPECT_GE(found.threads, 1);
  EXPECT_LE(found.threads, std::max(1, this_machine().cores / 4));
  EXPECT_GT(found.memory_bytes, 0);
  EXPECT_LE(found.memory_bytes, this_machine().memory_bytes / 4);
}

TEST(RankDevice, AMarginThatTakesAllIsInfeasible) {
  config::TrainConfig train;
  config::MemoryConfig memory;
  memory.device_gib = 1;
  memory.margin_gib = 1;
  EXPECT_THROW(as_one_of_four(train, memory), base::InfeasibleError);
}

TEST(RankDevice, CudaWithoutGpuIsRefused) {
  if (!this_machine().gpus.empty()) GTEST_SKIP() << "there is a GPU";
  config::TrainConfig train;
  train.device = config::DeviceChoice::kCuda;
  EXPECT_THROW(as_one_of_four(train, {}), base::InputError);
}

}  // namespace
}  // namespace sluice::profile
