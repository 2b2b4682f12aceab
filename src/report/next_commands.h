// The last lines of a run for its user: where the model lies, and the commands that go on from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice::report {

struct EndOfRun {
  std::filesystem::path directory;  // the run's
  int64_t steps_done = 0;
  int64_t steps = 0;                 // train.steps
  std::optional<int64_t> best_step;  // steps done at the best checkpoint, if it is another
  enum class Model : uint8_t { kWhole, kAdapters } model = Model::kWhole;
  // The model's output: text, embeddings, a text's numbers, or each token's, which no endpoint gives.
  enum class Output : uint8_t { kText, kEmbeddings, kNumbers, kTokenNumbers } output = Output::kText;
  int local_ranks = 0;  // started by `sluice train --nproc`; 0: by another launcher, or one rank
};

// Lines for people. Paths are quoted as a shell wants them.
std::string next_commands(const EndOfRun& end);

}  // namespace sluice::report
