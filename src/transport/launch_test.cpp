#include "transport/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::transport {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  Environment environment;
  Launch expected;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> table = {
      {"Nothing", {{"HOME", "/root"}}, {}},
      {"LocalLauncher",
       {{"SLUICE_RANK", "2"},
        {"SLUICE_WORLD_SIZE", "4"},
        {"SLUICE_LOCAL_RANK", "2"},
        {"SLUICE_LOCAL_SIZE", "4"},
        {"SLUICE_MASTER_ADDR", "127.0.0.1"},
        {"SLUICE_MASTER_PORT", "4711"},
        {"SLURM_PROCID", "0"}},
       {Launcher::kSluice, 2, 4, 2, 4, "127.0.0.1", 4711}},
      {"Torchrun",
       {{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "4"},
        {"MASTER_ADDR", "node0"},
        {"MASTER_PORT", "29500"},
        {"TORCHELASTIC_RUN_ID", "none"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_RESTART_COUNT", "3"}},
       {Launcher::kTorchrun, 5, 8, 1, 4, "node0", 29500, true, 3}},
      {"OpenMpiOnOneHost",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"MASTER_PORT", "6000"},
        {"SLURM_PROCID", "0"}},
       {Launcher::kMpi, 1, 2, 1, 2, "127.0.0.1", 6000}},
      {"IntelMpiOnTwoHosts",
       {{"PMI_RANK", "3"},
        {"PMI_SIZE", "4"},
        {"MPI_LOCALRANKID", "1"},
        {"MPI_LOCALNRANKS", "2"},
        {"MASTER_ADDR", "head"},
        {"MASTER_PORT", "6000"}},
       {Launcher::kMpi, 3, 4, 1, 2, "head", 6000}},
      {"Slurm",
       {{"SLURM_PROCID", "9"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "16"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_TASKS_PER_NODE", "8(x2)"},
        {"SLURM_NODELIST", "gpu[07-08],login"},
        {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
        {"SLURM_JOB_ID", "17"}},
       {Launcher::kSlurm, 9, 16, 1, 8, "gpu07", 20017}},
      {"SlurmWithPmi",
       {{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"PMI_RANK", "1"},
        {"PMI_SIZE", "2"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
        {"SLURM_NODELIST", "a,b"},
        {"SLURM_JOB_ID", "5"},
        {"MASTER_PORT", "7000"}},
       {Launcher::kSlurm, 1, 2, 0, 1, "a", 7000}},
      {"SlurmShellInAStepOfOneTask",
       {{"SLURM_PROCID", "0"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "8"},
        {"SLURM_STEP_NUM_TASKS", "1"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_TASKS_PER_NODE", "4(x2)"},
        {"SLURM_NODELIST", "a,b"},
        {"SLURM_STEP_NODELIST", "a"},
        {"SLURM_JOB_ID", "5"}},
       {Launcher::kSlurm, 0, 1, 0, 1, "a", 20005}},
      {"SlurmNodesOfUnequalTasks",
       {{"SLURM_PROCID", "9"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "11"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NODEID", "2"},
        {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
        {"SLURM_NODELIST", "a,b,c"},
        {"SLURM_JOB_ID", "5"}},
       {Launcher::kSlurm, 9, 11, 1, 3, "a", 20005}},
      {"SlurmBatchScriptOfOneTask",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_ID", "5"}, {"SLURM_NODELIST", "a"}},
       {}},
      {"AddressInBrackets",
       {{"RANK", "0"},
        {"WORLD_SIZE", "2"},
        {"LOCAL_RANK", "0"},
        {"MASTER_ADDR", "[fd00::5]"},
        {"MASTER_PORT", "29500"}},
       {Launcher::kTorchrun, 0, 2, 0, 2, "fd00::5", 29500}},
  };
  return table;
}

TEST(Launch, EveryLauncherIsRecognised) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const Launch launch = launch_from(test.environment);
    EXPECT_EQ(launch.launcher, test.expected.launcher);
    EXPECT_EQ(launch.rank, test.expected.rank);
    EXPECT_EQ(launch.world_size, test.expected.world_size);
    EXPECT_EQ(launch.local_rank, test.expected.local_rank);
    EXPECT_EQ(launch.local_size, test.expected.local_size);
    EXPECT_EQ(launch.master_address, test.expected.master_address);
    EXPECT_EQ(launch.master_port, test.expected.master_port);
    EXPECT_EQ(launch.agent_store, test.expected.agent_store);
    EXPECT_EQ(launch.attempt, test.expected.attempt);
  }
}

std::string error_of(const Environment& environment) {
  try {
    launch_from(environment);
  } catch (const base::InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Launch, MissingVariableIsNamed) {
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("torchrun did not set LOCAL_RANK"));
  EXPECT_THAT(error_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}),
              HasSubstr("Slurm did not set SLURM_NTASKS"));
  EXPECT_THAT(error_of({{"SLUICE_RANK", "0"}}), HasSubstr("SLUICE_WORLD_SIZE"));
}

TEST(Launch, SlurmsListsBeginWithTheHostOfRankZero) {
  const auto host_of = [](const std::string& nodes) {
    return launch_from({{"SLURM_PROCID", "0"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_NTASKS", "2"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_JOB_ID", "1"},
                        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                        {"SLURM_NODELIST", nodes}})
        .master_address;
  };
  EXPECT_EQ(host_of("login"), "login");
  EXPECT_EQ(host_of("a,b[1-2]"), "a");
  EXPECT_EQ(host_of("n[07,09-11]"), "n07");
  EXPECT_EQ(host_of("rack[0-1]node[0-3]"), "rack0node0");
  EXPECT_EQ(host_of("rack[0-1]node[03-05,9]x,c"), "rack0node03x");
  EXPECT_EQ(host_of("gpu-[003-004,9].cluster.local"), "gpu-003.cluster.local");
  EXPECT_THROW(host_of("gpu["), base::InputError);
}

TEST(Launch, ABatchScriptOfSeveralTasksIsToldOfSrun) {
  EXPECT_THAT(error_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "5"}}),
              HasSubstr("srun"));
}

TEST(Launch, MpiOnSeveralHostsNeedsAMasterAddress) {
  EXPECT_THAT(error_of({{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              HasSubstr("MASTER_ADDR"));
}

TEST(Launch, NonsenseValuesAreRefused) {
  EXPECT_THAT(error_of({{"RANK", "zero"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK of torchrun is 'zero'"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "-2"}}), HasSubstr("WORLD_SIZE of torchrun is '-2'"));
  EXPECT_THAT(error_of({{"SLUICE_RANK", "4"},
                        {"SLUICE_WORLD_SIZE", "4"},
                        {"SLUICE_LOCAL_RANK", "0"},
                        {"SLUICE_LOCAL_SIZE", "4"},
                        {"SLUICE_MASTER_ADDR", "127.0.0.1"},
                        {"SLUICE_MASTER_PORT", "4711"}}),
              HasSubstr("rank 4"));
}

}  // namespace
}  // namespace sluice::transport
