#include "cli/ranks.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/environment.h"
#include "config/run_config.h"
#include "train/control.h"
#include "transport/launch.h"
#include "transport/local_launcher.h"

namespace sluice::cli {

namespace {

[[noreturn]] void end_process(const base::Error& error) {
  const bool quiet = dynamic_cast<const train::QuietError*>(&error) != nullptr;
  base::log(quiet ? base::LogLevel::kDebug : base::LogLevel::kError, error.what());
  std::fflush(nullptr);
  ::_exit(error.exit_status());
}

// Lines for people go to stderr, and to a file of the run directory once that is known to work.
base::LogOptions log_options(const transport::Launch& launch) {
  base::LogOptions log;
  if (launch.world_size > 1) log.name = base::text("rank ", launch.rank);
  if (launch.rank != 0) log.stderr_level = base::LogLevel::kWarning;
  return log;
}

}  // namespace

void add_rank_options(CLI::App& command, RankOptions& options) {
  command.add_option("--config", options.config, "Run configuration (TOML)")->required();
  command.add_option("--set", options.settings, "section.key=value, over the configuration; any number")
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--nproc", options.nproc, "Start this many local ranks; 0: be one rank of the launcher")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
}

int launch_ranks(const RankOptions& options, const std::string& command,
                 const std::vector<std::string>& arguments) {
  transport::LocalLaunch local;
  local.command = {std::filesystem::read_symlink("/proc/self/exe").string(), command, "--config",
                   options.config};
  for (const std::string& setting : options.settings) {
    local.command.insert(local.command.end(), {"--set", setting});
  }
  local.command.insert(local.command.end(), arguments.begin(), arguments.end());
  local.ranks = options.nproc;
  local.environment = environment();
  local.say = [](const std::string& line) { std::fprintf(stderr, "sluice: %s\n", line.c_str()); };
  return transport::launch_locally(local).exit_status;
}

train::TrainerOptions this_rank(const RankOptions& options, RankLog destination) {
  train::TrainerOptions rank;
  rank.launch = transport::launch_from(environment());
  rank.end_process = &end_process;
  base::LogOptions log = log_options(rank.launch);
  base::configure_log(log);
  try {
    rank.config = config::read_config(options.config, options.settings);
    if (destination == RankLog::kRunDirectory) {
      base::make_directories(rank.config.log.dir);
      log.file = rank.config.log.dir / base::text("rank-", rank.launch.rank, ".log");
      base::configure_log(log);
    }
  } catch (const base::Error&) {
    rank.failure = std::current_exception();
  }
  return rank;
}

void end_after(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    end_process(error);
  } catch (const std::exception& error) {
    end_process(base::RunError(error.what()));
  }
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace sluice::cli
