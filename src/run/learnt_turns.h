// Conversations in the training corpora determine how the trained model is used: they give the chat template
// that rendered them, and the tokens that end learnt turns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/companions.h"
#include "config/run_config.h"
#include "corpus/turn_ends.h"

namespace sluice::run {

// The end tokens of learnt turns in the training corpora (corpus/turn_ends.h). Corpora without a mask, or
// without a tokenizer.json beside them, add none. `places`: of corpora in buckets.
std::vector<corpus::TurnEnd> learnt_turn_ends(const config::DataConfig& data,
                                              const corpus::IndexedOptions& places = {});

// The chat template in a model's files, found as by transformers; "": none.
std::string chat_template_in(const std::vector<checkpoint::Companion>& companions);
// The end-of-text tokens in a model's files; empty if the files have none.
std::vector<int64_t> end_tokens_in(const std::vector<checkpoint::Companion>& companions);

// Replaces the companions' chat template by the training corpora's. Adds the ends of learnt turns to their
// generation_config.json, and ends of documents if it lists any end. Logs changes. Corpora with different
// templates leave the companions' unchanged, with a warning.
void add_learnt_turns(const config::DataConfig& data, const corpus::IndexedOptions& places,
                      std::vector<checkpoint::Companion>& companions);

}  // namespace sluice::run
