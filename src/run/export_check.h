// Verifies an export: the folder, loaded again, has the loss, end tokens and chat template of its run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/conversion.h"
#include "config/run_config.h"

namespace sluice::run {

struct ExportCheck {
  double loss = 0;  // nats per target over a few sequences, of the run's corpora if they still exist
  int64_t sequences = 0;
  std::string without_loss;  // why no loss was computed; empty: it was computed
  std::vector<int64_t> end_tokens;
  bool has_template = false;
  std::string tokenizer;  // its file; empty: none

  std::string line() const;  // for people
};

// Loads a folder that export_checkpoint wrote from this checkpoint with these options. Compares model, loss
// of a few sequences, end tokens, chat template and tokenizer with the checkpoint's and, if they still exist,
// the run's corpora. RunError naming the difference. The losses are left out if memory is too small for the
// model.
ExportCheck check_export(checkpoint::Checkpoint& checkpoint, const std::filesystem::path& folder,
                         const checkpoint::ExportOptions& options,
                         const std::optional<config::RunConfig>& run);

}  // namespace sluice::run
