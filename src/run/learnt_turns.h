// What a run's conversations say of how the model that learns them is to be used: the chat template that they
// were rendered with, and the tokens that end learnt turns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/companions.h"
#include "config/run_config.h"
#include "corpus/turn_ends.h"

namespace sluice::run {

// The tokens with which the learnt turns of the training corpora end (corpus/turn_ends.h). Corpora without a
// mask, or without a tokenizer.json beside them, say nothing. `places`: of those in buckets.
std::vector<corpus::TurnEnd> learnt_turn_ends(const config::DataConfig& data,
                                              const corpus::IndexedOptions& places = {});

// The chat template that a model's files have, as transformers finds it; "": none.
std::string chat_template_in(const std::vector<checkpoint::Companion>& companions);
// The tokens that end a text by a model's files; none where they say nothing.
std::vector<int64_t> end_tokens_in(const std::vector<checkpoint::Companion>& companions);

// Makes the companions' chat template that of the training corpora, and adds the ends of learnt turns, and of
// documents where the companions list ends at all, to those of their generation_config.json. Logs what
// changes. Corpora whose templates differ leave the companions' alone, with a warning.
void add_learnt_turns(const config::DataConfig& data, const corpus::IndexedOptions& places,
                      std::vector<checkpoint::Companion>& companions);

}  // namespace sluice::run
