// Commands on several ranks: starting local ranks, and running as one of a launcher's ranks.
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

// Forks so many local ranks, which run `work` and end, and waits for them. Returns the exit status.
enum class Launched : uint8_t { kRanks, kSupervisors };  // supervisors are restarted (transport::LocalLaunch)
using BeginAnewAfter = std::function<std::optional<int64_t>()>;  // likewise
int launch_ranks(int ranks, Launched launched, std::function<void()> work,
                 BeginAnewAfter begin_anew_after_ns = {});

// Runs `action` in this process if `nproc` is 1. With 0 the process is a rank of its launcher, stored in
// `launch`, and ends afterwards. Otherwise so many local ranks run `action`.
void run_on_ranks(int nproc, transport::Launch& launch, const std::function<void()>& action,
                  const BeginAnewAfter& begin_anew_after_ns = {});

// The options of this process as one rank. It logs to stderr; with kRunDirectory, which is created, also to a
// file there. Failures are left to the collective set-up: every rank may have the same failure, and one of
// them should report it.
//
// If the ranks of a machine want more compute threads than it has cores, let_crowded_threads_sleep() has been
// or is called.
enum class RankLog { kStderr, kRunDirectory };
run::RunOptions this_rank(const RankOptions& options, const std::string& command, RankLog log);
// The options of the same process as the rank in `launch`.
run::RunOptions rank_of(const transport::Launch& launch, const RankOptions& options,
                        const std::string& command, RankLog log);
// The supervisor's options for its worker, with the rank in `launch`. The configuration is the one that the
// run began with, even if its file has changed.
run::RunOptions worker_of(const run::RunOptions& supervisor, const transport::Launch& launch);

// If a machine's ranks want more compute threads than it has cores, warns and restarts this process with
// sleeping OpenMP threads: OpenMP reads the setting once, when it is loaded.
void let_crowded_threads_sleep(const config::TrainConfig& train, const transport::Launch& launch);

// For a rank with nothing to save: SIGTERM and SIGINT end it with a message.
survive::StopSignal end_when_told();

// Reports the error and ends the process with its status at once: destructors would wait for peers that no
// longer answer.
[[noreturn]] void end_process(const base::Error& error);

// Runs `action`, then ends the process with the status of its error, as end_process() does.
[[noreturn]] void end_after(const std::function<void()>& action);

}  // namespace sluice::cli
