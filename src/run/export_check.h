// What an export is held to: the folder, loaded again, computes, ends and speaks as the run that made it.
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
  double loss = 0;  // nats a target of a few sequences: of the run's corpora where they are still there
  int64_t sequences = 0;
  std::string without_loss;  // why none was computed; empty: it was
  std::vector<int64_t> end_tokens;
  bool has_template = false;
  std::string tokenizer;  // its file; empty: none

  std::string line() const;  // for people
};

// Loads a folder that export_checkpoint wrote from this checkpoint with these options, and holds its shape,
// the loss of a few sequences, end tokens, chat template and tokenizer against the checkpoint's and, where
// they are still there, the run's corpora. RunError naming what differs. The losses are left out where memory
// is too small for the model.
ExportCheck check_export(checkpoint::Checkpoint& checkpoint, const std::filesystem::path& folder,
                         const checkpoint::ExportOptions& options,
                         const std::optional<config::RunConfig>& run);

}  // namespace sluice::run
