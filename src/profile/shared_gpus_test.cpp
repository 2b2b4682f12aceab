// Tests the shares of GPUs that ranks get, over a stand-in for CUDA's runtime. A process plays one table row:
// the node's ranks one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "profile/device.h"

namespace sluice::profile {
namespace {

#ifdef SLUICE_CUDART_STAND_IN

using ::testing::HasSubstr;

constexpr int64_t kFreeBytes = 80'000'000'000;

// A row's process prints for each rank the GPU's number and its part of the free memory, as "1/2".
struct Node {
  const char* name;
  const char* gpus;                  // the node's, one letter each
  std::vector<const char*> visible;  // by rank
  std::vector<std::string> expected;
};

std::vector<std::string> times(int count, const std::string& text) {
  return std::vector<std::string>(static_cast<size_t>(count), text);
}

const std::vector<Node>& nodes() {
  static const std::vector<Node> table = {
      {"torchrun",
       "abcdefgh",
       {8, "abcdefgh"},
       {"0 1/1", "1 1/1", "2 1/1", "3 1/1", "4 1/1", "5 1/1", "6 1/1", "7 1/1"}},
      {"SlurmGpusPerTask", "abcdefgh", {"a", "b", "c", "d", "e", "f", "g", "h"}, times(8, "0 1/1")},
      {"KubernetesTwoPodsOfOneGpu", "ab", {"a", "b"}, times(2, "0 1/1")},
      {"SlicesOfOneCard", "ABC", {"A", "B", "C"}, times(3, "0 1/1")},
      {"EightRanksOnFourGpus",
       "abcd",
       {8, "abcd"},
       {"0 1/2", "1 1/2", "2 1/2", "3 1/2", "0 1/2", "1 1/2", "2 1/2", "3 1/2"}},
      {"TwoRanksThatSeeTheSameGpu", "ab", {"a", "a"}, times(2, "0 1/2")},
      {"ThreeRanksOnTwoGpus", "ab", {3, "ab"}, {"0 1/2", "1 1/1", "0 1/2"}},
  };
  return table;
}

// Output of this program as `row`, in a process with the stand-in.
std::string played(const std::string& variables) {
  const std::string command = base::text(
      "env LD_PRELOAD=", SLUICE_CUDART_STAND_IN, " ", variables, " ",
      std::filesystem::read_symlink("/proc/self/exe").string(),
      " --gtest_filter=SharedGpus.DISABLED_Row --gtest_also_run_disabled_tests --gtest_brief=1 2>&1");
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  while (pipe != nullptr && std::fgets(buffer, sizeof buffer, pipe) != nullptr) output += buffer;
  ::pclose(pipe);
  return output;
}

// One row, in a process with the stand-in.
TEST(SharedGpus, DISABLED_Row) {
  const std::vector<std::string> visible = base::split(std::getenv("ROW_VISIBLE"), ',');
  transport::Launch launch;
  launch.world_size = launch.local_size = static_cast<int>(visible.size());
  config::TrainConfig train;
  config::MemoryConfig memory;
  memory.margin_gib = 0;
  const auto as = [&](size_t rank) {
    launch.rank = launch.local_rank = static_cast<int>(rank);
    ::setenv("STAND_IN_VISIBLE", visible[rank].c_str(), 1);
  };
  std::vector<DeviceCard> cards;
  for (size_t rank = 0; rank < visible.size(); ++rank) {
    as(rank);
    try {
      cards.push_back(device_card(train, launch));
    } catch (const base::InputError& error) {
      std::printf("refused: %s\n", error.what());
      return;
    }
  }
  for (size_t rank = 0; rank < visible.size(); ++rank) {
    as(rank);
    const RankDevice device = rank_device(train, memory, launch, cards, static_cast<int>(rank));
    std::printf("rank: %d 1/%lld\n", cards[rank].index,
                static_cast<long long>(kFreeBytes / device.memory_bytes));
  }
}

TEST(SharedGpus, MemoryIsDividedAmongRanksThatShareAGpu) {
  for (const Node& node : nodes()) {
    SCOPED_TRACE(node.name);
    std::vector<std::string> visible(node.visible.begin(), node.visible.end());
    const std::string output =
        played(base::text("STAND_IN_GPUS=", node.gpus, " ROW_VISIBLE=", base::join(visible, ",")));
    std::vector<std::string> found;
    for (const std::string& line : base::split(output, '\n')) {
      if (line.starts_with("rank: ")) found.push_back(line.substr(6));
    }
    EXPECT_EQ(found, node.expected) << output;
  }
}

TEST(SharedGpus, AutoRefusesAGpuThatCannotBeUsedAndNamesTheDriver) {
  constexpr int kInitializationError = 3, kSystemDriverMismatch = 803;
  for (const int error : {kInitializationError, kSystemDriverMismatch}) {
    const std::string output = played(base::text("STAND_IN_GPUS=a ROW_VISIBLE=a STAND_IN_ERROR=", error));
    EXPECT_THAT(output, HasSubstr("refused: this machine seems to have GPUs, but they cannot be used"));
    EXPECT_THAT(output, HasSubstr("NVIDIA's driver 580 or newer is needed"));
    EXPECT_THAT(output, HasSubstr("train.device = \"cpu\""));
  }
}

#else

TEST(SharedGpus, MemoryIsDividedAmongRanksThatShareAGpu) {
  GTEST_SKIP() << "built without CUDA: its headers are not there";
}

#endif

TEST(SharedCores, AThreadForEachCoreOfItsOwn) {
  const auto threads = [&](const std::vector<std::vector<int>>& cores, int self, double processors = 0) {
    std::vector<DeviceCard> cards;
    for (const std::vector<int>& own : cores) {
      DeviceCard& card = cards.emplace_back();
      for (const int core : own) CPU_SET(core, &card.cores);
    }
    return threads_of(cards, self, processors, static_cast<int>(cores.size()));
  };
  EXPECT_EQ(threads({{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}, {10}}, 0), 4) << "bound by the launcher";
  EXPECT_EQ(threads({{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}, {10}}, 2), 2);
  EXPECT_EQ(threads({{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}}, 1), 4) << "shared evenly";
  EXPECT_EQ(threads({{0}, {0}, {0}, {0}}, 3), 1) << "at least one";
  EXPECT_EQ(threads({{0, 1, 2, 3}, {0, 1}}, 0), 3) << "two of its own, and half of two";
  EXPECT_EQ(threads({{0, 1, 2, 3}, {0, 1, 2, 3}}, 0, /*processors=*/2.5), 1) << "a container's time";
}

}  // namespace
}  // namespace sluice::profile
