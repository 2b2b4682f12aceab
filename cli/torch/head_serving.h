// Serving of models that end in a head: numbers instead of text.
#pragma once

#include "run/evaluator.h"
#include "run/model_source.h"
#include "serve/head_api.h"
#include "serve/head_engine.h"

namespace sluice::cli {

// Whether requests get the head's numbers instead of text.
bool ends_in_head(const run::ModelSource& model);

// InputError if the head gives numbers of tokens, which no endpoint has. REQUIRES: ends_in_head().
serve::ServedHead served_head(const run::ModelSource& model);

// Computes with the evaluator, which must outlive the result.
serve::HeadEngine::Compute head_numbers_of(run::Evaluator& evaluator);

}  // namespace sluice::cli
