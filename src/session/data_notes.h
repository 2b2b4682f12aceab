// Notes on documents that a run leaves out, and checks for unusable ones, before the first step.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/token_texts.h"
#include "session/data.h"

namespace sluice::session {

// InputError naming the corpus and both numbers if a corpus has tokens without rows in the model. A corpus is
// searched if its tokenizer has more ids than the model has rows, or an unknown number of ids. The search is
// whole for too many ids, and for a .bin of at most kMostSearchedBytes; else it looks at evenly spread
// documents. REQUIRES: config.model.resolved.
inline constexpr int64_t kMostSearchedBytes = int64_t{1} << 28;
void require_rows(const config::RunConfig& config, const Data& data);

// InputError naming an id and its two texts if a corpus has another tokenizer than the model's folder. If the
// folder has none, the first training corpus counts. data.other_tokenizers disables the check. Only corpora
// with a tokenizer beside them are compared.
void require_tokenizer(const config::RunConfig& config, const Data& data);

// The tokenizer's file in a folder, or beside a corpus there; empty: there is none.
std::optional<corpus::TokenizerBytes> tokenizer_in(const std::filesystem::path& folder);

// A line for each kind of document that training or evaluation leaves out or cuts, with the numbers, and for
// each evaluation without anything to evaluate. Reads masks of validation sets up to the first token with a
// loss.
std::vector<std::string> data_notes(const config::RunConfig& config, const Data& data);

}  // namespace sluice::session
