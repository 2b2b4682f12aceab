// Options of the commands that compute with a model as it is: eval and generate.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "run/evaluator.h"

namespace sluice::cli {

struct ModelOptions {
  std::string model;
  std::string dtype = "exact";
  std::string device = "auto";
  int threads = 0;
};

void add_model_option(CLI::App& command, ModelOptions& options);
// What is computed in, and where.
void add_computing_options(CLI::App& command, ModelOptions& options);

// How to evaluate `model`, whose types "exact" takes, under these options.
run::EvaluatorOptions evaluation_of(const ModelOptions& options, const run::ModelSource& model);

// How many positions the model was made for, as the config.json that goes with it says; 0: it does not.
int64_t positions_of(const run::ModelSource& model);
// How many tokens of a text an embedding model reads: max_seq_length of the sentence_bert_config.json that
// goes with it, else as many as positions_of(); 0: neither says it.
int64_t text_tokens_of(const ModelOptions& options, const run::ModelSource& model);
// Says, on the first rank, when `tokens` are more; `what` has so many.
void warn_beyond_positions(const run::ModelSource& model, int64_t tokens, const std::string& what, int rank);

}  // namespace sluice::cli
