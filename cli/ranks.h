// Commands that run on several ranks: starting local ones, and being one of a launcher's.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace sluice::cli {

struct RankOptions {
  std::string config;
  std::vector<std::string> settings;
  int nproc = 0;
};

// --config, --set, --nproc.
void add_rank_options(CLI::App& command, RankOptions& options);

// Starts options.nproc copies of this program as `command` with the same configuration and `arguments`, one
// rank each, and waits for them. Returns the exit status.
int launch_ranks(const RankOptions& options, const std::string& command,
                 const std::vector<std::string>& arguments);

// The process as one rank. Its log goes to stderr; with kRunDirectory, which is made, to a file there as
// well. What fails is left to the collective set-up: every rank may fail of the same, and one of them should
// say so.
enum class RankLog { kStderr, kRunDirectory };
train::TrainerOptions this_rank(const RankOptions& options, RankLog log);

// Runs `action`, then ends the process with the status of its error, at once: destructors would wait for
// peers that no longer answer.
[[noreturn]] void end_after(const std::function<void()>& action);

}  // namespace sluice::cli
