// What of a run's documents is left out, and what cannot be used, before the first step.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "corpus/token_texts.h"
#include "session/data.h"

namespace sluice::session {

// InputError naming the corpus, and both numbers, where one has tokens that the model has no rows for. A
// corpus whose tokenizer has more ids than the model rows, or does not say how many it has, is looked
// through: whole where its .bin has at most kMostSearchedBytes, and otherwise where content_hash() looks.
// REQUIRES: config.model.shape.
inline constexpr int64_t kMostSearchedBytes = int64_t{1} << 28;
void require_rows(const config::RunConfig& config, const Data& data);

// InputError naming an id and its two texts where a corpus is of another tokenizer than the model's folder,
// or than the first training corpus where that has none, unless data.other_tokenizers. Only corpora with
// their tokenizer beside them are compared.
void require_tokenizer(const config::RunConfig& config, const Data& data);

// The tokenizer's file in a folder, or beside a corpus there; none: it has none.
std::optional<corpus::TokenizerBytes> tokenizer_in(const std::filesystem::path& folder);

// A line for each kind of document that training or evaluation passes over or cuts, with the numbers, and for
// each evaluation that has nothing to look at. Reads masks of validation sets up to the first token that
// counts.
std::vector<std::string> data_notes(const config::RunConfig& config, const Data& data);

}  // namespace sluice::session
