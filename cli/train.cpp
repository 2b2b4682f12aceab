// sluice train: trains; with --nproc N it starts N local ranks, else it is one rank of whatever launched it.
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "config/run_config.h"
#include "train/candidates.h"
#include "train/control.h"
#include "train/trainer.h"
#include "transport/launch.h"
#include "transport/local_launcher.h"

namespace sluice::cli {

namespace {

struct Options {
  std::string config;
  std::vector<std::string> settings;
  int nproc = 0;
  std::string resume;
  bool dry_run = false;
  std::vector<std::string> arguments;  // of this process, for its copies
};

// Ends the process at once: destructors would wait for peers that no longer answer.
[[noreturn]] void end_process(const base::Error& error) {
  const bool quiet = dynamic_cast<const train::QuietError*>(&error) != nullptr;
  base::log(quiet ? base::LogLevel::kDebug : base::LogLevel::kError, error.what());
  std::fflush(nullptr);
  ::_exit(error.exit_status());
}

// The command line of one rank: this one's without --nproc.
std::vector<std::string> rank_command(const Options& options) {
  std::vector<std::string> command{"/proc/self/exe", "train", "--config", options.config};
  for (const std::string& setting : options.settings) command.insert(command.end(), {"--set", setting});
  if (!options.resume.empty()) command.insert(command.end(), {"--resume", options.resume});
  if (options.dry_run) command.push_back("--dry-run");
  return command;
}

// Finds what is wrong with the user's input before any rank starts, so that it is said once.
void check_input(const Options& options) {
  config::RunConfig config = config::read_config(options.config, options.settings);
  config::resolve_model(config);
  train::configured_strategies(config, options.nproc);
  train::open_data(config);
}

int launch(const Options& options) {
  check_input(options);
  transport::LocalLaunch local;
  local.command = rank_command(options);
  local.command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  local.ranks = options.nproc;
  local.environment = environment();
  local.say = [](const std::string& line) { std::fprintf(stderr, "sluice: %s\n", line.c_str()); };
  return transport::launch_locally(local).exit_status;
}

// Lines for people go to stderr, and to a file of the run directory once that is known to work.
base::LogOptions log_options(const transport::Launch& launch) {
  base::LogOptions log;
  if (launch.world_size > 1) log.name = base::text("rank ", launch.rank);
  if (launch.rank != 0) log.stderr_level = base::LogLevel::kWarning;
  return log;
}

// Reads the configuration and opens the log. What fails is left to the trainer: every rank may fail of the
// same, and one of them should say so.
void prepare(const Options& options, train::TrainerOptions& trainer) {
  base::LogOptions log = log_options(trainer.launch);
  base::configure_log(log);
  try {
    trainer.config = config::read_config(options.config, options.settings);
    base::make_directories(trainer.config.log.dir);
    log.file = trainer.config.log.dir / base::text("rank-", trainer.launch.rank, ".log");
    base::configure_log(log);
  } catch (const base::Error&) {
    trainer.failure = std::current_exception();
  }
}

int run_rank(const Options& options) {
  train::TrainerOptions trainer_options;
  trainer_options.launch = transport::launch_from(environment());
  trainer_options.resume = options.resume;
  trainer_options.dry_run = options.dry_run;
  trainer_options.end_process = &end_process;
  prepare(options, trainer_options);
  const transport::Launch& launch = trainer_options.launch;
  try {
    // Never destroyed: see end_process.
    auto* trainer = new train::Trainer(trainer_options);
    if (options.dry_run) {
      const std::string plan = trainer->describe_first_step();
      if (launch.rank == 0) std::cout << plan << std::endl;
    } else {
      trainer->run();
    }
  } catch (const base::Error& error) {
    end_process(error);
  } catch (const std::exception& error) {
    end_process(base::RunError(error.what()));
  }
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  auto options = std::make_shared<Options>();
  command->add_option("--config", options->config, "Run configuration (TOML)")->required();
  command->add_option("--set", options->settings, "section.key=value, over the configuration; any number")
      ->take_all()
      ->allow_extra_args(false);
  command
      ->add_option("--nproc", options->nproc, "Start this many local ranks; 0: be one rank of the launcher")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_option(
      "--resume", options->resume,
      "auto: the newest checkpoint of the run directory, if any; or a checkpoint or run directory");
  command->add_flag("--dry-run", options->dry_run, "Check everything and print the plan of the first step");
  command->callback([options] {
    const int exit_status = options->nproc > 0 ? launch(*options) : run_rank(*options);
    if (exit_status != 0) std::exit(exit_status);
  });
}

}  // namespace sluice::cli
