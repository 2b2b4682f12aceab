// sluice profile: measures this machine, on as many ranks as training will use, for a run's model.
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/torch/ranks.h"
#include "cli/torch_commands.h"
#include "config/config_file.h"
#include "config/run_config.h"
#include "profile/profile_table.h"
#include "run/profile_run.h"
#include "session/run_planning.h"

namespace sluice::cli {

namespace {

constexpr double kNanosecondsPerSecond = 1e9;

struct ProfileArguments {
  RankOptions ranks;
  double seconds = 20;
  std::filesystem::path out = "calibration.json";
  bool json = false;
};

// A row of the file for each TP degree, written as a pipeline of one stage.
std::vector<strategy::Scheme> schemes_of(const profile::ProbeResult& found) {
  std::vector<strategy::Scheme> schemes;
  for (const auto& [tp, fits] : found.fits_by_tp) schemes.push_back({tp, 1, 1});
  return schemes;
}

[[noreturn]] void run_rank(const ProfileArguments& options) {
  end_after([&] {
    const survive::StopSignal stop = end_when_told();
    // The first rank writes the file; others may be on machines without its folder.
    const run::RunOptions rank = this_rank(options.ranks, "profile", RankLog::kStderr);
    if (rank.launch.rank == 0) require_output("--out", options.out, Output::kFile);
    const profile::ProbeResult found =
        run::profile_run(rank, static_cast<int64_t>(options.seconds * kNanosecondsPerSecond));
    if (rank.launch.rank != 0) return;
    const base::Json json = cost::to_json(found.calibration, schemes_of(found), rank.launch.world_size);
    base::write_json(options.out, json);
    if (options.json) {
      std::cout << base::json_text(json, 2) << std::endl;
    } else {
      std::cout << profile::profile_table(found) << "\nwritten to " << options.out.string() << std::endl;
    }
  });
}

int launch(const ProfileArguments& options) {
  require_output("--out", options.out, Output::kFile);
  config::RunConfig config = read_run_config(options.ranks.config, options.ranks.settings);
  config::resolve_model(config);
  session::configured_strategies(config, options.ranks.nproc);
  let_crowded_threads_sleep(config.train,
                            {.launcher = transport::Launcher::kSluice, .local_size = options.ranks.nproc});
  return launch_ranks(options.ranks.nproc, Launched::kRanks, [&] { run_rank(options); });
}

}  // namespace

void add_profile(CLI::App& app) {
  CLI::App* command = app.add_subcommand("profile", about_torch_command("profile"));
  auto options = std::make_shared<ProfileArguments>();
  add_rank_options(*command, options->ranks);
  command
      ->add_option("--seconds", options->seconds, "Time to measure for; three repetitions are always taken")
      ->capture_default_str()
      ->check(within(0.0, 86'400.0));
  command->add_option("--out", options->out, "File to write")->capture_default_str();
  command->add_flag("--json", options->json, "Print the calibration as JSON");
  command->callback([options] {
    if (options->ranks.nproc == 0) run_rank(*options);
    const int exit_status = launch(*options);
    if (exit_status != 0) std::exit(exit_status);
  });
}

}  // namespace sluice::cli
