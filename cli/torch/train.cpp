// sluice train: trains; with --nproc N it starts N local ranks, else it is one rank of its launcher.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/torch/ranks.h"
#include "cli/torch_commands.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "run/epochs.h"
#include "run/offline_plan.h"
#include "session/run_planning.h"
#include "survive/roster.h"
#include "survive/supervisor.h"
#include "train/trainer.h"

namespace sluice::cli {

namespace {

struct TrainArguments {
  RankOptions ranks;
  std::string resume;
  bool dry_run = false;
  bool join = false;
  std::string cluster;  // for a dry run: plan for this cluster instead of the machine
};

// Checks the user's input before any rank starts, so that faults are reported once.
config::RunConfig check_input(const RankOptions& options) {
  config::RunConfig config = read_run_config(options.config, options.settings);
  config::resolve_model(config);
  session::configured_strategies(config, options.nproc);
  run::resolve_epochs(config, corpus_places());
  session::open_data(config, corpus_places());
  return config;
}

// Starts no rank: the machine may be another one.
void describe_on_cluster(const TrainArguments& options) {
  config::RunConfig config = read_run_config(options.ranks.config, options.ranks.settings);
  config::resolve_model(config);
  config.cluster.preset = options.cluster;
  std::cout << run::describe_first_step(run::offline_planning(config, options.ranks.nproc, corpus_places()))
            << std::endl;
}

[[noreturn]] void run_rank(const TrainArguments& options, run::RunOptions rank) {
  end_after([&] {
    rank.resume = options.resume;
    rank.dry_run = options.dry_run;
    auto* trainer = new train::Trainer(rank);  // never destroyed, as in end_after()
    if (!options.dry_run) return trainer->run();
    const std::string plan = trainer->describe_first_step();
    if (rank.launch.rank == 0) std::cout << plan << std::endl;
  });
}

// Identifies a run's snapshots by its directory and configuration: others are not for it.
std::string memory_identity(const config::RunConfig& config) {
  base::CanonicalBytes bytes;
  bytes.add(std::filesystem::absolute(config.log.dir).lexically_normal().string());
  bytes.add(config::to_toml(config));
  return base::hash_text(bytes.hash());
}

[[noreturn]] void supervise(const TrainArguments& options, const run::RunOptions& rank,
                            std::vector<membership::Member> contacts) {
  survive::SupervisorOptions supervisor{
      .launch = rank.launch,
      .run_directory = rank.config.log.dir,
      .join_timeout_ns = rank.config.train.join_timeout_s * 1'000'000'000,
      .contacts = std::move(contacts),
      .work = [&](const transport::Launch& launch, const survive::WorkerContext& worker_context) {
        run::RunOptions worker = worker_of(rank, launch);
        worker.worker_context = worker_context;
        run_rank(options, std::move(worker));
      }};
  // Our own launcher replaces lost ranks; other launchers end all ranks and restart them.
  if (rank.launch.launcher != transport::Launcher::kSluice) {
    supervisor.memory = {.identity = memory_identity(rank.config), .takes_up = options.resume == "auto"};
  }
  end_after([&] {
    const int status = survive::supervise(supervisor);
    std::fflush(nullptr);
    ::_exit(status);
  });
}

// Runs one rank: as itself, or in an elastic run as the supervisor of the rank's workers.
[[noreturn]] void be_rank(const TrainArguments& options) {
  run::RunOptions rank = this_rank(options.ranks, "train", RankLog::kRunDirectory);
  const bool elastic = rank.config.elastic.enabled && rank.launch.world_size > 1 && !options.dry_run;
  const bool launched =
      rank.launch.launcher != transport::Launcher::kSluice || rank.launch.supervisor_fd >= 0;
  if (rank.failure || !elastic || !launched) run_rank(options, std::move(rank));
  supervise(options, rank, {});
}

int launch(const TrainArguments& options) {
  const config::RunConfig config = check_input(options.ranks);
  const int ranks = options.ranks.nproc;
  let_crowded_threads_sleep(config.train, {.launcher = transport::Launcher::kSluice, .local_size = ranks});
  const bool elastic = config.elastic.enabled && ranks > 1 && !options.dry_run;
  return launch_ranks(ranks, elastic ? Launched::kSupervisors : Launched::kRanks, [&] { be_rank(options); });
}

// Runs a rank that joins the ranks of a launcher in place of a lost one.
[[noreturn]] void join_run(const TrainArguments& options) {
  end_after([&] {
    const config::RunConfig config = read_run_config(options.ranks.config, options.ranks.settings);
    const survive::Roster roster = survive::read_roster(config.log.dir);
    const auto variables = environment();
    const auto secret = variables.find("SLUICE_SECRET");
    transport::Launch launch{.rank = roster.world_size,  // not one of the first ranks
                             .world_size = roster.world_size + 1,
                             .local_size = 0,  // not all ranks are on this machine
                             .master_address = roster.members.front().address,
                             .run = roster.run,
                             .secret = secret == variables.end() ? "" : secret->second,
                             .joins = true};
    supervise(options, rank_of(launch, options.ranks, "train", RankLog::kRunDirectory), roster.members);
  });
  std::abort();
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", about_torch_command("train"));
  auto options = std::make_shared<TrainArguments>();
  add_rank_options(*command, options->ranks);
  add_python_option(*command);
  command->add_option(
      "--resume", options->resume,
      "auto: the newest checkpoint of the run directory or its mirror, if any; or a checkpoint or run "
      "directory, also s3://BUCKET/NAME");
  CLI::Option* dry_run = command->add_flag(
      "--dry-run", options->dry_run,
      "Check everything, the longest sequence among it, and print the plan of the first step");
  command
      ->add_option("--cluster", options->cluster,
                   base::text("With --dry-run: for this cluster instead of this machine, a preset (",
                              base::join(strategy::cluster_preset_names(), ", "),
                              ") or a file; --nproc 0 takes all of its devices"))
      ->needs(dry_run);
  command
      ->add_flag("--join", options->join,
                 "Join the run that is under way in the run directory, as one more rank after its next step")
      ->excludes("--nproc")
      ->excludes("--resume")
      ->excludes(dry_run);
  command->callback([options] {
    if (options->join) join_run(*options);
    if (!options->cluster.empty()) return describe_on_cluster(*options);
    if (options->ranks.nproc == 0) be_rank(*options);
    const int exit_status = launch(*options);
    if (exit_status != 0) std::exit(exit_status);
  });
}

}  // namespace sluice::cli
