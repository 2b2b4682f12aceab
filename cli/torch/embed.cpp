// sluice embed: computes embeddings of texts with a model that ends in an embedding head.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/torch/generation.h"
#include "cli/torch/model_options.h"
#include "cli/torch_commands.h"
#include "run/evaluator.h"

namespace sluice::cli {

using base::text;

namespace {

struct EmbedArguments : ModelOptions {
  std::filesystem::path file;
  std::filesystem::path out;
  std::string tokenizer;
  std::string prompt;          // in front of each text
  int64_t context_length = 0;  // 0: the model's own
  int64_t tokens_per_batch = 8192;
};

struct InputText {
  std::string text;
  std::string place;  // "FILE:17"
};

InputText text_of_line(const std::string& line, const std::string& place) {
  if (!line.starts_with('{')) return {line, place};
  base::Json object;
  if (const auto fault = base::read_json_text(line, base::JsonDialect::kPython, object))
    throw base::InputError(described(*fault, place));
  const base::Json* const found = base::find(object, "text");
  if (found == nullptr || !found->is_string())
    throw base::InputError(text(place, ": there is no text under 'text': give it one"));
  return {found->get<std::string>(), place};
}

// Reads texts, one per line: an object with text, or the text itself.
std::vector<InputText> read_texts(const EmbedArguments& options) {
  std::vector<InputText> texts;
  const std::string bytes = base::read_file(options.file);
  int64_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    std::string line(base::trim(std::string_view(bytes).substr(begin, end - begin)));
    const std::string place = text(options.file.string(), ":", ++number);
    begin = end + 1;
    texts.push_back(text_of_line(line, place));
    if (!base::trim(texts.back().text).empty()) continue;
    throw base::InputError(
        text(place, ": the text is empty, and an empty text lies nowhere: remove the line"));
  }
  if (texts.empty()) throw base::InputError(text(options.file.string(), " holds no text: give a line each"));
  return texts;
}

std::vector<int32_t> tokens_of(const corpus::Tokenizer& tokenizer, const InputText& input,
                               const EmbedArguments& options) {
  std::vector<int32_t> tokens =
      corpus::with_ends(tokenizer, tokenizer.encode(options.prompt + input.text), options.context_length);
  if (!tokens.empty()) return tokens;
  throw base::InputError(
      text(input.place, ": '", input.text, "' has no token: lengthen it, or give --prompt"));
}

void divide_by_length(std::vector<double>& row) {
  double squares = 0;
  for (const double each : row) squares += each * each;
  for (double& each : row) each /= std::max(std::sqrt(squares), 1e-12);
}

std::string lines_of(run::Evaluator& evaluator, const std::vector<std::vector<int32_t>>& texts,
                     const EmbedArguments& options) {
  std::string lines;
  for (size_t begin = 0; begin < texts.size();) {
    std::vector<std::vector<int32_t>> batch;
    for (int64_t tokens = 0; begin + batch.size() < texts.size();) {
      const std::vector<int32_t>& next = texts[begin + batch.size()];
      tokens += std::ssize(next);
      if (!batch.empty() && tokens > options.tokens_per_batch) break;
      batch.push_back(next);
    }
    std::vector<std::vector<double>> rows = evaluator.text_numbers(batch);
    for (size_t i = 0; i < rows.size(); ++i) {
      divide_by_length(rows[i]);
      lines += base::json_text({{"index", begin + i}, {"embedding", rows[i]}}) + "\n";
    }
    begin += batch.size();
  }
  return lines;
}

void run(EmbedArguments options) {
  const std::vector<InputText> inputs = read_texts(options);
  options.model = model_folder(options.model);
  run::ModelSource model = run::open_model(locate(options.model));
  if (model.model().head().kind != model::HeadKind::kRows) {
    throw base::InputError(text(
        model.name(), " does not end in embeddings: train one with head.kind = \"embed\" ", "(heads.md)"));
  }
  if (options.context_length == 0) {
    constexpr int64_t kUsual = 2048;  // used if the model gives no length
    const int64_t text_tokens = text_tokens_of(options, model);
    options.context_length = text_tokens > 0 ? text_tokens : kUsual;
  }
  const std::unique_ptr<corpus::Tokenizer> tokenizer = tokenizer_of(options.tokenizer, model, Needed::kYes);
  std::vector<std::vector<int32_t>> texts;
  int64_t longest = 2;
  for (const InputText& input : inputs) {
    texts.push_back(tokens_of(*tokenizer, input, options));
    longest = std::max<int64_t>(longest, std::ssize(texts.back()));
  }
  run::EvaluatorOptions evaluation = evaluation_of(options, model);
  evaluation.context_length = longest;
  run::Evaluator evaluator(model, evaluation);
  const std::string lines = lines_of(evaluator, texts, options);
  if (options.out.empty()) {
    std::cout << lines;
  } else {
    base::write_file_atomically(options.out, lines);
  }
}

}  // namespace

void add_embed(CLI::App& app) {
  CLI::App* command = app.add_subcommand("embed", about_torch_command("embed"));
  auto options = std::make_shared<EmbedArguments>();
  command->add_option("file", options->file, "Texts, a line each, or JSON Lines with text")->required();
  add_model_option(*command, *options);
  add_output(*command, "--out", options->out, Output::kFile,
             "Where the embeddings go, JSON Lines with index and embedding (default: standard output)");
  command->add_option("--tokenizer", options->tokenizer, "In place of the model's own: a file or a folder");
  command->add_option("--prompt", options->prompt, "Stands in front of each text");
  command
      ->add_option("--context-length", options->context_length,
                   "Tokens of a text at most; others are cut; 0: max_seq_length of the model's "
                   "sentence_bert_config.json, or its positions")
      ->check(within(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--tokens-per-batch", options->tokens_per_batch,
                   "Tokens that go through the model at once; memory grows with it")
      ->check(at_least(1))
      ->capture_default_str();
  add_computing_options(*command, *options);
  command->callback([options] { run(*options); });
}

}  // namespace sluice::cli
