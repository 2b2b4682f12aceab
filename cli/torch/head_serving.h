// What `serve` takes of a model that ends in a head.
#pragma once

#include "run/evaluator.h"
#include "run/model_source.h"
#include "serve/head_api.h"
#include "serve/head_engine.h"

namespace sluice::cli {

// Whether requests ask for its numbers, and not for text.
bool ends_in_head(const run::ModelSource& model);

// InputError where the head has numbers of tokens, which no endpoint gives. REQUIRES: ends_in_head().
serve::ServedHead served_head(const run::ModelSource& model);

// By the evaluator, which must outlive it.
serve::HeadEngine::Compute head_numbers_of(run::Evaluator& evaluator);

}  // namespace sluice::cli
