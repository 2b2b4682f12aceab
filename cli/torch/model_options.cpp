#include "cli/torch/model_options.h"

#include "cli/number.h"
#include "config/words.h"

namespace sluice::cli {

void add_model_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--model", options.model,
                  "Hugging Face folder, checkpoint (step-N), or run directory: its newest checkpoint")
      ->required();
}

void add_computing_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option(
          "--dtype", options.dtype,
          "What is computed in: float32, bfloat16, float64; exact: the type of the weights, float32 or "
          "wider")
      ->check(CLI::IsMember({"exact", "float32", "bfloat16", "float64"}))
      ->capture_default_str();
  command.add_option("--device", options.device, "auto (a GPU where there is one), cpu or cuda")
      ->check(CLI::IsMember(config::texts_of(config::kDevices)))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Compute threads; 0: one a core")
      ->check(within(0, 4096))
      ->capture_default_str();
}

train::EvaluatorOptions evaluation_of(const ModelOptions& options, const train::ModelSource& model) {
  train::EvaluatorOptions evaluation;
  evaluation.dtype =
      options.dtype == "exact" ? model.exact_dtype() : config::value_of(config::kComputeTypes, options.dtype);
  evaluation.device = config::value_of(config::kDevices, options.device);
  evaluation.threads = options.threads;
  return evaluation;
}

}  // namespace sluice::cli
