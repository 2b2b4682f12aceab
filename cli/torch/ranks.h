// Commands that run on several ranks: starting local ones, and being one of a launcher's.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/run_config.h"
#include "run/run_options.h"
#include "survive/stop_signal.h"

namespace sluice::cli {

struct RankOptions {
  std::string config;
  std::vector<std::string> settings;
  int nproc = 0;
};

// --config, --set, --nproc.
void add_rank_options(CLI::App& command, RankOptions& options);

// Forks so many local ranks, each of which does `work` and ends, and waits for them. Returns the exit status.
enum class Launched : uint8_t { kRanks, kSupervisors };  // who are started anew (transport::LocalLaunch)
using BeginAnewAfter = std::function<std::optional<int64_t>()>;  // likewise
int launch_ranks(int ranks, Launched launched, std::function<void()> work,
                 BeginAnewAfter begin_anew_after_ns = {});

// Runs `action` in this process, alone or, with `nproc` 0, as a rank of its launcher, which `launch` then
// says, and ends it; or in so many local ranks.
void run_on_ranks(int nproc, transport::Launch& launch, const std::function<void()>& action,
                  const BeginAnewAfter& begin_anew_after_ns = {});

// The process as one rank. Its log goes to stderr; with kRunDirectory, which is made, to a file there as
// well. What fails is left to the collective set-up: every rank may fail of the same, and one of them should
// say so.
//
// Where the ranks of a machine want more compute threads than it has cores, let_crowded_threads_sleep() has
// been or is called.
enum class RankLog { kStderr, kRunDirectory };
run::RunOptions this_rank(const RankOptions& options, const std::string& command, RankLog log);
// The same process as the rank of `launch`.
run::RunOptions rank_of(const transport::Launch& launch, const RankOptions& options,
                        const std::string& command, RankLog log);
// What a rank's supervisor began with, for a worker of its that is the rank that `launch` says: the
// configuration is that of the run's beginning, whatever has become of its file.
run::RunOptions worker_of(const run::RunOptions& supervisor, const transport::Launch& launch);

// Where these ranks of a machine want more compute threads than it has cores, says so and starts this process
// again with OpenMP told to sleep where it waits: it reads that once, when it is loaded.
void let_crowded_threads_sleep(const config::TrainConfig& train, const transport::Launch& launch);

// For a rank with nothing to save: SIGTERM and SIGINT end it, and say so.
survive::StopSignal end_when_told();

// Tells the error and ends the process with its status at once: destructors would wait for peers that no
// longer answer.
[[noreturn]] void end_process(const base::Error& error);

// Runs `action`, then ends the process with the status of its error, as end_process() does.
[[noreturn]] void end_after(const std::function<void()>& action);

}  // namespace sluice::cli
