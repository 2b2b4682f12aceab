// Options of the commands that compute with a finished model: eval and generate.
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
// Adds the options for type, device and threads.
void add_computing_options(CLI::App& command, ModelOptions& options);

// The evaluator's options for `model`; dtype "exact" takes the model's own type.
run::EvaluatorOptions evaluation_of(const ModelOptions& options, const run::ModelSource& model);

// The positions in the config.json that goes with the model; 0: not given.
int64_t positions_of(const run::ModelSource& model);
// The tokens of a text that an embedding model reads: max_seq_length in its sentence_bert_config.json, else
// positions_of(); 0: neither is given.
int64_t text_tokens_of(const ModelOptions& options, const run::ModelSource& model);
// Warns, on the first rank, if `tokens` exceed positions_of(); the message names their source, `what`.
void warn_beyond_positions(const run::ModelSource& model, int64_t tokens, const std::string& what, int rank);

}  // namespace sluice::cli
