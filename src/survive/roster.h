// The file members.json in a run directory, written by rank 0 of the newest membership. It names the members
// that a new rank asks to join, and the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "membership/membership.h"
#include "survive/supervisor.h"

namespace sluice::survive {

struct Roster {
  std::vector<membership::Member> members;
  std::string run;  // RunKey::run
  int world_size = 1;
};

void write_roster(const std::filesystem::path& run_directory, const WorkerContext& worker_context);
// InputError if no run that can be joined is in progress there.
Roster read_roster(const std::filesystem::path& run_directory);

}  // namespace sluice::survive
