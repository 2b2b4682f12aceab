// The tokenizer that a run's corpora were made with, exported with the model.
#pragma once

#include <vector>

#include "checkpoint/companions.h"
#include "config/run_config.h"
#include "corpus/indexed.h"

namespace sluice::run {

// Adds the tokenizer file beside the training corpora to `companions`. A companion of another kind stays in
// its place; one of the same kind with other content is replaced. The tokenizer_config.json and
// chat_template.jinja beside any of the corpora are added, too. Corpora without a tokenizer add nothing.
// Corpora with different tokenizers or settings add none of them, with a warning. `places`: for corpora in
// buckets.
void add_corpus_tokenizer(const config::DataConfig& data, const corpus::IndexedOptions& places,
                          std::vector<checkpoint::Companion>& companions);

}  // namespace sluice::run
