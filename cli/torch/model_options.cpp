#include "cli/torch/model_options.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/text.h"
#include "base/words.h"
#include "cli/number.h"
#include "config/words.h"
#include "session/made_for.h"

namespace sluice::cli {

void add_model_option(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--model", options.model,
                  "Hugging Face folder, a model of the hub (ORGANISATION/NAME), checkpoint (step-N), or run "
                  "directory: its "
                  "newest checkpoint")
      ->required();
}

void add_computing_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option("--dtype", options.dtype,
                  "Type of compute: float32, bfloat16, float64; exact: the type of the weights, float32 or "
                  "wider")
      ->check(CLI::IsMember({"exact", "float32", "bfloat16", "float64"}))
      ->capture_default_str();
  command.add_option("--device", options.device, "auto (a GPU where there is one), cpu or cuda")
      ->check(CLI::IsMember(base::texts_of(config::kDevices)))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Compute threads; 0: one a core")
      ->check(within(0, 4096))
      ->capture_default_str();
}

run::EvaluatorOptions evaluation_of(const ModelOptions& options, const run::ModelSource& model) {
  run::EvaluatorOptions evaluation;
  evaluation.dtype =
      options.dtype == "exact" ? model.exact_dtype() : *base::find_word(config::kComputeTypes, options.dtype);
  evaluation.device = *base::find_word(config::kDevices, options.device);
  evaluation.threads = options.threads;
  return evaluation;
}

int64_t positions_of(const run::ModelSource& model) {
  if (model.hugging_face) return session::positions_of(model.hugging_face->config());
  for (const checkpoint::Companion& companion : model.checkpoint->companions()) {
    if (companion.name == "config.json")
      return session::positions_of(base::parse_python_json(companion.bytes, companion.name));
  }
  return 0;
}

namespace {

constexpr const char* kSentenceConfig = "sentence_bert_config.json";  // a file of sentence-transformers

std::string sentence_config(const ModelOptions& options, const run::ModelSource& model) {
  if (model.hugging_face) {
    const std::filesystem::path path = std::filesystem::path(options.model) / kSentenceConfig;
    return std::filesystem::exists(path) ? base::read_file(path) : "";
  }
  for (const checkpoint::Companion& companion : model.checkpoint->companions()) {
    if (companion.name == kSentenceConfig) return companion.bytes;
  }
  return "";
}

}  // namespace

int64_t text_tokens_of(const ModelOptions& options, const run::ModelSource& model) {
  const std::string bytes = sentence_config(options, model);
  if (bytes.empty()) return positions_of(model);
  const base::Json config = base::parse_python_json(bytes, kSentenceConfig);
  const base::Json* const most = base::find(config, "max_seq_length");
  if (most == nullptr || most->is_null()) return positions_of(model);
  if (most->is_number_integer() && *most >= 1) return most->get<int64_t>();
  throw base::InputError(base::text(kSentenceConfig, ": max_seq_length is ", base::excerpt(*most),
                                    ": give a number of tokens, or null"));
}

void warn_beyond_positions(const run::ModelSource& model, int64_t tokens, const std::string& what, int rank) {
  if (rank > 0) return;
  const std::string note = session::positions_note(positions_of(model), tokens, what);
  if (!note.empty()) base::log_warning(note);
}

}  // namespace sluice::cli
