// Who has to be asked to join the run of a directory, as its newest epoch's first rank wrote it down, and how
// the run is called.
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
// InputError when no run that can be joined is under way there.
Roster read_roster(const std::filesystem::path& run_directory);

}  // namespace sluice::survive
