// sluice train: trains; with --nproc N it starts N local ranks, else it is one rank of whatever launched it.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>

#include "base/text.h"
#include "cli/command.h"
#include "cli/ranks.h"
#include "config/run_config.h"
#include "config/run_planning.h"
#include "train/offline_plan.h"
#include "train/trainer.h"

namespace sluice::cli {

namespace {

struct Options {
  RankOptions ranks;
  std::string resume;
  bool dry_run = false;
  std::string cluster;  // for a dry run: another one than the machine
};

// Finds what is wrong with the user's input before any rank starts, so that it is said once.
config::RunConfig check_input(const RankOptions& options) {
  config::RunConfig config = config::read_config(options.config, options.settings);
  config::resolve_model(config);
  config::configured_strategies(config, options.nproc);
  config::open_data(config);
  return config;
}

// No rank is started: the machine may be another's.
void describe_on_cluster(const Options& options) {
  config::RunConfig config = config::read_config(options.ranks.config, options.ranks.settings);
  config::resolve_model(config);
  config.cluster.preset = options.cluster;
  std::cout << train::describe_first_step(train::offline_planning(config, options.ranks.nproc)) << std::endl;
}

int launch(const Options& options) {
  const bool elastic =
      check_input(options.ranks).elastic.enabled && options.ranks.nproc > 1 && !options.dry_run;
  std::vector<std::string> arguments;
  if (!options.resume.empty()) arguments = {"--resume", options.resume};
  if (options.dry_run) arguments.push_back("--dry-run");
  return launch_ranks(options.ranks, "train", arguments, elastic ? Launched::kSupervisors : Launched::kRanks);
}

[[noreturn]] void run_rank(const Options& options, train::TrainerOptions rank) {
  end_after([&] {
    rank.resume = options.resume;
    rank.dry_run = options.dry_run;
    auto* trainer = new train::Trainer(rank);  // never destroyed, as end_after says
    if (!options.dry_run) return trainer->run();
    const std::string plan = trainer->describe_first_step();
    if (rank.launch.rank == 0) std::cout << plan << std::endl;
  });
}

// One rank: itself, or with a supervisor's listener its supervisor, whose workers are it.
[[noreturn]] void be_rank(const Options& options) {
  train::TrainerOptions rank = this_rank(options.ranks, "train", RankLog::kRunDirectory);
  if (rank.launch.supervisor_fd < 0 || rank.failure) run_rank(options, std::move(rank));
  const train::SupervisorOptions supervisor{
      .launch = rank.launch,
      .run_directory = rank.config.log.dir,
      .work = [&](const transport::Launch& launch, const train::Seat& seat) {
        train::TrainerOptions worker = this_worker(options.ranks, "train", RankLog::kRunDirectory, launch);
        worker.seat = seat;
        run_rank(options, std::move(worker));
      }};
  end_after([&] {
    const int status = train::supervise(supervisor);
    std::fflush(nullptr);
    ::_exit(status);
  });
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  auto options = std::make_shared<Options>();
  add_rank_options(*command, options->ranks);
  command->add_option(
      "--resume", options->resume,
      "auto: the newest checkpoint of the run directory, if any; or a checkpoint or run directory");
  CLI::Option* dry_run = command->add_flag(
      "--dry-run", options->dry_run,
      "Check everything, the longest sequence among it, and print the plan of the first step");
  command
      ->add_option("--cluster", options->cluster,
                   base::text("With --dry-run: for this cluster instead of this machine, a preset (",
                              base::join(strategy::cluster_preset_names(), ", "),
                              ") or a file; --nproc 0 takes all of its devices"))
      ->needs(dry_run);
  command->callback([options] {
    if (!options->cluster.empty()) return describe_on_cluster(*options);
    if (options->ranks.nproc == 0) be_rank(*options);
    const int exit_status = launch(*options);
    if (exit_status != 0) std::exit(exit_status);
  });
}

}  // namespace sluice::cli
