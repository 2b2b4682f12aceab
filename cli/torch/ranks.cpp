#include "cli/torch/ranks.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/core_set.h"
#include "base/error.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stderr_lines.h"
#include "base/text.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "survive/control.h"
#include "transport/launch.h"
#include "transport/local_launcher.h"

namespace sluice::cli {

void end_process(const base::Error& error) {
  base::LogLevel level = base::LogLevel::kError;
  if (dynamic_cast<const survive::QuietError*>(&error) != nullptr) level = base::LogLevel::kDebug;
  if (dynamic_cast<const run::MembershipChange*>(&error) != nullptr) level = base::LogLevel::kInfo;
  base::log(level, error.what());
  std::fflush(nullptr);
  ::_exit(error.exit_status());
}

namespace {

// Logs go to stderr, and later also to a file in the run directory.
base::LogOptions log_options(const transport::Launch& launch) {
  base::LogOptions log;
  if (launch.world_size > 1) log.name = base::text("rank ", launch.rank);
  if (launch.rank != 0) log.stderr_level = base::LogLevel::kWarning;
  return log;
}

void log_into(const std::filesystem::path& run_directory, const transport::Launch& launch) {
  base::LogOptions log = log_options(launch);
  base::make_directories(run_directory);
  log.file = run_directory / base::text("rank-", launch.rank, ".log");
  base::configure_log(log);
}

}  // namespace

void add_rank_options(CLI::App& command, RankOptions& options) {
  command.add_option("--config", options.config, "Run configuration (TOML)")->required();
  command.add_option("--set", options.settings, "section.key=value, over the configuration; any number")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--nproc", options.nproc, "Start this many local ranks; 0: be one rank of the launcher")
      ->capture_default_str()
      ->check(within(0, 4096));
}

int launch_ranks(int ranks, Launched launched, std::function<void()> work,
                 BeginAnewAfter begin_anew_after_ns) {
  std::cout.flush();  // or each rank would print the remaining output again
  transport::LocalLaunch local;
  local.work = std::move(work);
  local.begin_anew_after_ns = std::move(begin_anew_after_ns);
  local.ranks = ranks;
  local.supervised = launched == Launched::kSupervisors;
  local.log = [](const std::string& line) { base::say_on_stderr(base::text("sluice: ", line, "\n")); };
  return transport::launch_locally(local).exit_status;
}

// OpenMP's threads spin at the end of every loop until the last one arrives. With more threads than cores,
// the last one waits for a core that a spinning thread holds: steps take ten times as long.
void let_crowded_threads_sleep(const config::TrainConfig& train, const transport::Launch& launch) {
  // A launcher that binds ranks to cores leaves each rank fewer cores than the machine has.
  const base::CoreSet own = base::own_cores();
  const int cores = base::cores_together({&own, 1});
  const bool bound =
      launch.launcher != transport::Launcher::kSluice && cores < ::sysconf(_SC_NPROCESSORS_ONLN);
  const int64_t wanted = int64_t{train.threads} * (bound ? 1 : launch.local_size);
  const auto variables = environment();
  const bool chosen = variables.contains("OMP_WAIT_POLICY") || variables.contains("GOMP_SPINCOUNT");
  if (train.threads <= 1 || wanted <= cores || chosen) return;
  if (launch.local_rank == 0) {
    base::log_warning(base::text(
        "train.threads = ", train.threads, " on ", base::human_count(launch.local_size, "rank", "ranks"),
        " of this machine are ", wanted, " threads for ", base::human_count(cores, "core", "cores"),
        ": they take turns; lower train.threads, or leave it at 0"));
  }
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  std::vector<std::string> arguments = command_line();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  ::execv("/proc/self/exe", pointers.data());
  base::log_warning(
      base::text("cannot start this program again with OMP_WAIT_POLICY=passive: ", std::strerror(errno)));
}

namespace {

// Users set the variable in this way to use no GPU.
bool hides_all_gpus(const transport::Environment& environment) {
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  return visible != environment.end() && (visible->second.empty() || visible->second == "-1");
}

}  // namespace

run::RunOptions this_rank(const RankOptions& options, const std::string& command, RankLog destination) {
  run::RunOptions rank = rank_of(transport::launch_from(environment()), options, command, destination);
  if (!rank.failure) let_crowded_threads_sleep(rank.config.train, rank.launch);
  return rank;
}

run::RunOptions rank_of(const transport::Launch& launch, const RankOptions& options,
                        const std::string& command, RankLog destination) {
  run::RunOptions rank;
  rank.command = base::text("sluice ", command, " --config ", options.config);
  rank.launch = launch;
  rank.end_process = &end_process;
  rank.locate = &locate;
  rank.corpora = corpus_places();
  rank.cache = dependencies_directory();
  rank.tools = python_tools();
  base::configure_log(log_options(launch));
  try {
    rank.config = read_run_config(options.config, options.settings);
    if (hides_all_gpus(environment()) && rank.config.train.device == config::DeviceChoice::kAuto)
      rank.config.train.device = config::DeviceChoice::kCpu;
    if (destination == RankLog::kRunDirectory) log_into(rank.config.log.dir, launch);
  } catch (const base::Error&) {
    rank.failure = std::current_exception();
  }
  return rank;
}

run::RunOptions worker_of(const run::RunOptions& supervisor, const transport::Launch& launch) {
  run::RunOptions worker = supervisor;
  worker.launch = launch;
  base::configure_log(log_options(launch));
  try {
    log_into(worker.config.log.dir, launch);
  } catch (const base::Error&) {
    worker.failure = std::current_exception();
  }
  return worker;
}

survive::StopSignal end_when_told() {
  return survive::StopSignal([] { end_process(base::RunError("stopped by a signal")); });
}

void end_after(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    end_process(error);
  } catch (const std::exception& error) {
    end_process(base::RunError(base::describe_failure(error)));
  }
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(0);
}

void run_on_ranks(int nproc, transport::Launch& launch, const std::function<void()>& action,
                  const BeginAnewAfter& begin_anew_after_ns) {
  if (nproc == 1) return action();
  const auto be_rank = [&] {
    end_after([&] {
      launch = transport::launch_from(environment());
      action();
    });
  };
  if (nproc == 0) be_rank();
  const int exit_status = launch_ranks(nproc, Launched::kRanks, be_rank, begin_anew_after_ns);
  if (exit_status != 0) std::exit(exit_status);
}

}  // namespace sluice::cli
