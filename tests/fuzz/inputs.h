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
  int64_t share = kUsualShare;  // of all cases, beside the others'
  static constexpr int64_t kUsualShare = 40;
};

// Calibrations, strategies, lengths, clusters and plans. What is accepted is written and read again, which
// must give the same, and batches are planned with it.
std::vector<Input> planning_inputs();

// Run configurations, models' config.json, timelines, run directories, manifests, corpora, documents and
// tokenizers, by way of files in `scratch` where they are read from files.
std::vector<Input> file_inputs(const std::filesystem::path& scratch);

// Models in shards with the optimiser's state, checkpoints, data sets, and what killed
// processes leave. REQUIRES: after file_inputs() of the same folder.
std::vector<Input> folder_inputs(const std::filesystem::path& scratch);

// Parquet and Arrow tables, and tokenizer.json with what lies beside it, read by child processes in Python: a
// small share, for each takes as long as hundreds of others. None where that Python is not installed.
std::vector<Input> python_inputs(const std::filesystem::path& scratch);

// JSON against the library's own parser, documents in every layout and compression, TOML: what is accepted is
// written and read again, and what is refused names file and place.
std::vector<Input> reader_inputs(const std::filesystem::path& scratch);

// Reads a file that is damaged before each reading and sound again behind it: others may read it, too.
std::function<void(base::Rng&)> damaged_file(const std::filesystem::path& path,
                                             const std::function<void(const std::filesystem::path&)>& read);

}  // namespace sluice::fuzz
