// sluice train: trains; with --nproc N it starts N local ranks, else it is one rank of whatever launched it.
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/ranks.h"
#include "config/run_config.h"
#include "train/candidates.h"
#include "train/trainer.h"

namespace sluice::cli {

namespace {

struct Options {
  RankOptions ranks;
  std::string resume;
  bool dry_run = false;
};

// Finds what is wrong with the user's input before any rank starts, so that it is said once.
void check_input(const RankOptions& options) {
  config::RunConfig config = config::read_config(options.config, options.settings);
  config::resolve_model(config);
  train::configured_strategies(config, options.nproc);
  train::open_data(config);
}

int launch(const Options& options) {
  check_input(options.ranks);
  std::vector<std::string> arguments;
  if (!options.resume.empty()) arguments = {"--resume", options.resume};
  if (options.dry_run) arguments.push_back("--dry-run");
  return launch_ranks(options.ranks, "train", arguments);
}

[[noreturn]] void run_rank(const Options& options) {
  end_after([&] {
    train::TrainerOptions rank = this_rank(options.ranks, "train", RankLog::kRunDirectory);
    rank.resume = options.resume;
    rank.dry_run = options.dry_run;
    auto* trainer = new train::Trainer(rank);  // never destroyed, as end_after says
    if (!options.dry_run) return trainer->run();
    const std::string plan = trainer->describe_first_step();
    if (rank.launch.rank == 0) std::cout << plan << std::endl;
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
  command->add_flag("--dry-run", options->dry_run, "Check everything and print the plan of the first step");
  command->callback([options] {
    if (options->ranks.nproc == 0) run_rank(*options);
    const int exit_status = launch(*options);
    if (exit_status != 0) std::exit(exit_status);
  });
}

}  // namespace sluice::cli
