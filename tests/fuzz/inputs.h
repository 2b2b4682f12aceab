// Everything that reads what somebody else may have written, each with a sound input that it damages.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"

namespace sluice::fuzz {

struct Input {
  std::string name;
  // Damages a copy of the sound input, reads it, and uses what was accepted. InputError and InfeasibleError
  // are fine; RunError says what is wrong with the reader.
  std::function<void(base::Rng&)> read_damaged;
};

// Calibrations, strategies, lengths, clusters and plans. What is accepted is written and read again, which
// must give the same, and batches are planned with it.
std::vector<Input> planning_inputs();

// Run configurations, models' config.json, timelines, run directories, checkpoints, corpora, documents and
// tokenizers, by way of files in `scratch` where they are read from files.
std::vector<Input> file_inputs(const std::filesystem::path& scratch);

}  // namespace sluice::fuzz
