// sluice generate: what a model says behind a prompt, the most likely token at a time.
#include <ATen/ops/argmax.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/model_options.h"
#include "cli/number.h"
#include "cli/tokenizers.h"
#include "train/evaluator.h"

namespace sluice::cli {

using base::text;

namespace {

struct Options : ModelOptions {
  std::filesystem::path tokenizer;
  std::string prompt;
  int64_t tokens = 64;
  bool json = false;
};

// Where the model's own files lie.
storage::Location folder_of(const train::ModelSource& model) {
  return model.hugging_face ? model.hugging_face->folder() : model.checkpoint->directory() / "model";
}

std::unique_ptr<corpus::Tokenizer> tokenizer_of(const Options& options, const train::ModelSource& model) {
  if (!options.tokenizer.empty()) return open_tokenizer(options.tokenizer);
  const storage::Location folder = folder_of(model);
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (folder.is_path() && (folder / name).is_file()) return open_tokenizer((folder / name).path());
  }
  throw base::InputError(text("no tokenizer goes with ", model.name(), ": name one with --tokenizer"));
}

// The prompt's tokens as a document begins.
std::vector<int64_t> tokens_of(const corpus::Tokenizer& tokenizer, const std::string& prompt,
                               int64_t vocabulary) {
  std::vector<int64_t> tokens;
  if (tokenizer.begin_id() >= 0) tokens.push_back(tokenizer.begin_id());
  for (const int32_t id : tokenizer.encode(prompt)) tokens.push_back(id);
  if (tokens.empty()) {
    throw base::InputError(
        "the prompt has no token, and the tokenizer none to begin with: give --prompt some text");
  }
  for (const int64_t token : tokens) {
    if (token < vocabulary) continue;
    throw base::InputError(text("the prompt has token ", token, ", but the model's vocabulary has ",
                                vocabulary, " ids: name the model's own tokenizer with --tokenizer"));
  }
  return tokens;
}

void run(const Options& options) {
  train::ModelSource model = train::open_model(locate(options.model));
  const std::unique_ptr<corpus::Tokenizer> tokenizer = tokenizer_of(options, model);
  std::string prompt = options.prompt;
  if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<int64_t> tokens = tokens_of(*tokenizer, prompt, model.shape().vocab);
  const auto given = static_cast<int64_t>(tokens.size());

  train::EvaluatorOptions evaluation = evaluation_of(options, model);
  evaluation.context_length = given + options.tokens;
  train::Evaluator evaluator(model, evaluation);
  std::vector<int32_t> said;
  bool ended = false;
  base::Progress progress("generating", options.tokens);
  while (static_cast<int64_t>(said.size()) < options.tokens) {
    const at::Tensor logits = evaluator.logits(tokens);
    const int64_t next = at::argmax(logits[logits.size(0) - 1]).item<int64_t>();
    ended = next == tokenizer->end_id();
    if (ended) break;
    tokens.push_back(next);
    said.push_back(static_cast<int32_t>(next));
    progress.advance(1);
  }
  progress.finish();
  const std::string continuation = tokenizer->decode(said);
  if (options.json) {
    std::cout << base::json_text({{"model", model.name()},
                                  {"prompt", prompt},
                                  {"text", continuation},
                                  {"prompt_tokens", given},
                                  {"ids", said},
                                  {"ended", ended}},
                                 2)
              << "\n";
  } else {
    std::cout << prompt << continuation << "\n";
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "What a model says behind a prompt: the likeliest tokens");
  auto options = std::make_shared<Options>();
  add_model_option(*command, *options);
  command->add_option("--prompt", options->prompt, "Text to go on from; - reads standard input")->required();
  command
      ->add_option("--tokens", options->tokens,
                   "Most tokens to say; each takes a forward pass over all before it")
      ->check(within(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer, "Tokenizer, file or folder (default: the model's)");
  add_computing_options(*command, *options);
  command->add_flag("--json", options->json, "Print the result as JSON");
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli
