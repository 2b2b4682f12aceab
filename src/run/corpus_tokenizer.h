// The tokenizer that a run's text was made with, for whoever gets the model.
#pragma once

#include <vector>

#include "checkpoint/companions.h"
#include "config/run_config.h"
#include "corpus/indexed.h"

namespace sluice::run {

// Adds the tokenizer file that lies beside the training corpora to `companions`, unless one of another kind
// is there already; one of the same kind with other content gives way to it. With it come the
// tokenizer_config.json and chat_template.jinja that lie beside any of them. Corpora without a tokenizer, or
// with different ones, add nothing; the latter with a warning. So do different settings. `places`: of corpora
// in buckets.
void add_corpus_tokenizer(const config::DataConfig& data, const corpus::IndexedOptions& places,
                          std::vector<checkpoint::Companion>& companions);

}  // namespace sluice::run
