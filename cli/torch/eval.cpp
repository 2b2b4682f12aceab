// sluice eval: mean token loss of a model on corpora.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/number.h"
#include "cli/outputs.h"
#include "cli/torch/model_options.h"
#include "cli/torch/ranks.h"
#include "cli/torch/retrieval.h"
#include "cli/torch_commands.h"
#include "corpus/blend.h"
#include "corpus/load_tokenizer.h"
#include "corpus/token_texts.h"
#include "model/table_positions.h"
#include "run/evaluator.h"
#include "run/logits_file.h"
#include "session/head_labels.h"

namespace sluice::cli {

using base::text;

namespace {

struct EvalArguments : ModelOptions {
  std::vector<std::string> corpora;
  std::vector<std::string> positives, negatives;  // documents for the queries in `corpora`
  corpus::SamplerOptions sampling{.tokens_per_step = 8192};
  std::string overflow = "truncate";
  int nproc = 1;
  std::string strategy;
  int64_t most_sequences = 0;
  std::filesystem::path losses;
  std::filesystem::path scores;
  std::filesystem::path logits;
  int64_t logits_sequences = 4;
  bool other_tokenizer = false;
  bool json = false;
  transport::Launch launch;
};

// The batches of the whole corpora, or of their first sequences. With losses of single sequences each batch
// has one sequence.
std::vector<corpus::Batch> batches_of(const corpus::Blend& blend, const EvalArguments& options) {
  corpus::SamplerOptions sampling = options.sampling;
  sampling.overflow = corpus::parse_overflow(options.overflow, "--overflow");
  sampling.tokens_per_step *= options.launch.world_size;
  if (!options.losses.empty()) sampling.tokens_per_step = 1;
  std::vector<corpus::Batch> batches = corpus::batches_in_order(blend.sources(), sampling);
  if (options.most_sequences <= 0) return batches;
  int64_t left = options.most_sequences;
  for (corpus::Batch& batch : batches) {
    const auto taken = std::min(left, static_cast<int64_t>(batch.samples.size()));
    batch.samples.resize(static_cast<size_t>(taken));
    left -= taken;
  }
  std::erase_if(batches, [](const corpus::Batch& batch) { return batch.samples.empty(); });
  return batches;
}

int64_t longest_in(const std::vector<corpus::Batch>& batches) {
  int64_t longest = 0;
  for (const corpus::Batch& batch : batches) {
    for (const corpus::Sample& sample : batch.samples) longest = std::max(longest, sample.length_tokens);
  }
  return longest;
}

base::Json sequence_json(const corpus::Sample& sample, const run::EvaluationResult& result) {
  return {{"document", sample.document},
          {"begin", sample.begin_token},
          {"length", sample.length_tokens},
          {"targets", result.targets},
          {"loss_sum", result.loss_sum}};
}

struct Outcome {
  run::EvaluationResult result;
  int64_t sequences = 0;
  std::optional<run::ClassScores> scores;  // for a head of numbers and documents with labels
  bool compared = true;                    // else only the numbers of --scores exist
};

// A line of --scores: the numbers of a sequence, or of each of its tokens.
base::Json scores_json(const corpus::Sample& sample, const std::vector<run::RowNumbers>& rows,
                       bool of_tokens) {
  base::Json numbers = base::Json::array();
  for (const run::RowNumbers& row : rows) numbers.push_back(row.numbers);
  return {{"document", sample.document}, {"numbers", of_tokens || rows.empty() ? numbers : numbers.front()}};
}

// InputError if the mean is over no targets, or is not a number: it would tell nothing about the model.
void require_loss(const Outcome& outcome, const EvalArguments& options, const corpus::Blend& blend) {
  const corpus::LabelRule* const rule = blend.label_rule();
  if (rule != nullptr && rule->form == corpus::LabelForm::kNone) return;
  if (outcome.result.targets == 0) {
    throw base::InputError(text("none of ", base::human_count(outcome.sequences, "sequence", "sequences"),
                                " has a token that counts: their masks leave none; evaluate more with "
                                "--sequences, or another corpus"));
  }
  if (std::isfinite(outcome.result.loss_sum)) return;
  throw base::RunError(text("the loss is ", outcome.result.loss_sum, " when computed in ", options.dtype,
                            ": the model's activations overflow; try --dtype float32"));
}

Outcome evaluate(run::Evaluator& evaluator, const corpus::Blend& blend,
                 const std::vector<corpus::Batch>& batches, const EvalArguments& options) {
  Outcome outcome;
  const corpus::LabelRule* const rule = blend.label_rule();
  if (rule != nullptr) outcome.scores.emplace(*rule);
  outcome.compared = rule == nullptr || rule->form != corpus::LabelForm::kNone;
  std::string losses, scores;
  std::optional<base::Progress> progress;
  if (options.launch.rank == 0) progress.emplace("evaluating", static_cast<int64_t>(batches.size()));
  for (const corpus::Batch& batch : batches) {
    const run::EvaluationResult result = evaluator.evaluate(blend, batch.samples);
    outcome.result.loss_sum += result.loss_sum;
    outcome.result.targets += result.targets;
    outcome.sequences += static_cast<int64_t>(batch.samples.size());
    for (size_t i = 0; i < result.numbers.size(); ++i) {
      const corpus::Sample& sample = batch.samples[i];
      run::add_rows(blend, {sample.document, sample.begin_token, sample.length_tokens}, result.numbers[i],
                    *outcome.scores);
      if (!options.scores.empty())
        scores += base::json_text(scores_json(sample, result.numbers[i], rule->of_tokens)) + "\n";
    }
    if (!options.losses.empty())
      losses += base::json_text(sequence_json(batch.samples.front(), result)) + "\n";
    if (progress) progress->advance(1);
  }
  progress.reset();
  if (!options.losses.empty() && options.launch.rank == 0)
    base::write_file_atomically(options.losses, losses);
  if (!options.scores.empty() && options.launch.rank == 0)
    base::write_file_atomically(options.scores, scores);
  require_loss(outcome, options, blend);
  return outcome;
}

void print(const EvalArguments& options, const run::ModelSource& model, const Outcome& outcome) {
  std::optional<double> accuracy, f1;
  if (outcome.scores) {
    accuracy = outcome.scores->accuracy();
    f1 = outcome.scores->f1();
  }
  if (options.json) {
    base::Json json = {{"model", model.name()}, {"sequences", outcome.sequences}};
    if (outcome.compared) {
      json["loss"] = outcome.result.mean_loss();
      json["targets"] = outcome.result.targets;
    }
    if (accuracy) json["accuracy"] = *accuracy;
    if (f1) json["f1"] = *f1;
    std::cout << base::json_text(json, 2) << "\n";
    return;
  }
  const std::string sequences = base::human_count(outcome.sequences, "sequence", "sequences");
  if (!outcome.compared) {
    std::cout << text(model.name(), ": numbers of ", sequences, " in ", options.scores.string(), "\n");
    return;
  }
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.7f", outcome.result.mean_loss());
  std::cout << text(model.name(), ": loss ", loss, " nats over ",
                    base::human_count(outcome.result.targets, "target", "targets"), " in ", sequences,
                    accuracy ? text(", accuracy ", *accuracy, ", F1 ", *f1) : "", "\n");
}

// The tokenizer that goes with the model; empty if it has none.
std::optional<corpus::TokenizerBytes> model_tokenizer(const EvalArguments& options,
                                                      const run::ModelSource& model) {
  if (model.hugging_face) {
    const std::filesystem::path path =
        corpus::tokenizer_beside(std::filesystem::path(options.model) / "corpus");
    if (path.empty()) return std::nullopt;
    return corpus::TokenizerBytes{path.string(), base::read_file(path)};
  }
  for (const checkpoint::Companion& companion : model.checkpoint->companions()) {
    if (companion.name == "tokenizer.json" || companion.name == "tokenizer.model")
      return corpus::TokenizerBytes{companion.name, companion.bytes};
  }
  return std::nullopt;
}

// With another tokenizer's ids the loss would mean nothing.
void require_tokenizer(const EvalArguments& options, const run::ModelSource& model) {
  const std::optional<corpus::TokenizerBytes> own = model_tokenizer(options, model);
  if (!own || options.other_tokenizer) return;
  std::vector<std::string> prefixes = options.corpora;
  prefixes.insert(prefixes.end(), options.positives.begin(), options.positives.end());
  prefixes.insert(prefixes.end(), options.negatives.begin(), options.negatives.end());
  for (const std::string& prefix : prefixes) {
    const std::filesystem::path path =
        corpus::tokenizer_beside(corpus::corpus_prefix(prefix), corpus_places());
    if (path.empty()) continue;
    const std::string found = corpus::difference({path.string(), base::read_file(path)}, *own);
    if (!found.empty())
      throw base::InputError(
          text(prefix, " is of another tokenizer than the model: ", found,
               ": build the corpus with the model's, or give --other-tokenizer where this is meant"));
  }
}

// Compares a head with labels if all corpora have some; else its numbers are written alone.
void label(corpus::Blend& blend, const EvalArguments& options, const model::Model& model) {
  std::shared_ptr<const corpus::LabelRule> rule = session::label_rule(model);
  const bool labelled = rule != nullptr && blend.has_labels();
  if (!labelled && options.scores.empty()) {
    throw base::InputError(
        rule != nullptr ? "the model ends in numbers, and the corpora have no labels: build them with "
                          "--labels, or name a file for the numbers with --scores"
                        : "the model ends in embeddings, which no label is compared with: name the texts "
                          "that those of --corpus look for with --positives, or a file for their numbers "
                          "with --scores, or ask sluice embed");
  }
  if (!labelled) {
    corpus::LabelRule none{.form = corpus::LabelForm::kNone,
                           .of_tokens = model.head().kind == model::HeadKind::kTokens,
                           .row = session::label_row(model.head()),
                           .names = {}};
    rule = std::make_shared<const corpus::LabelRule>(std::move(none));
  }
  blend.label_by(std::move(rule));
}

// For sequences of at most `longest` tokens. Ranks never destroy it: it would wait for lost peers.
run::Evaluator* new_evaluator(run::ModelSource& model, const EvalArguments& options, int64_t longest,
                              const char* what) {
  warn_beyond_positions(model, longest, what, options.launch.rank);
  run::EvaluatorOptions evaluation = evaluation_of(options, model);
  evaluation.context_length = model::table_positions(model.model(), options.sampling.context_length, longest);
  evaluation.launch = options.launch;
  evaluation.strategy = options.strategy;
  return new run::Evaluator(model, evaluation);
}

void print(const EvalArguments& options, const run::ModelSource& model, const run::RetrievalScores& scores) {
  if (options.json) {
    const base::Json json = {{"model", model.name()},
                             {"queries", scores.queries},
                             {"documents", scores.documents},
                             {"recall_at_1", scores.recall_at_1},
                             {"recall_at_10", scores.recall_at_10},
                             {"mrr_at_10", scores.mrr_at_10},
                             {"ndcg_at_10", scores.ndcg_at_10}};
    std::cout << base::json_text(json, 2) << "\n";
    return;
  }
  char figures[128];
  std::snprintf(figures, sizeof figures, "recall at 10 %.4f, at 1 %.4f, MRR at 10 %.4f, nDCG at 10 %.4f",
                scores.recall_at_10, scores.recall_at_1, scores.mrr_at_10, scores.ndcg_at_10);
  std::cout << text(model.name(), ": ", figures, " of ",
                    base::human_count(scores.queries, "query", "queries"), " among ",
                    base::human_count(scores.documents, "document", "documents"), "\n");
}

// Evaluates queries of --corpus against the documents of --positives and --negatives.
void run_retrieval(run::ModelSource& model, const EvalArguments& options,
                   const corpus::IndexedOptions& indexed) {
  if (model.model().head().kind != model::HeadKind::kRows) {
    throw base::InputError(text("--positives are texts that embeddings find, and ", model.name(),
                                " ends in none: train one with head.kind = \"embed\" (heads.md), or leave "
                                "--positives out"));
  }
  if (!options.scores.empty() || !options.losses.empty() || !options.logits.empty())
    throw base::InputError("--scores, --losses and --logits are of --corpus alone: leave out --positives");
  const int64_t text_tokens = text_tokens_of(options, model);
  RetrievalOptions retrieval{.context_length = text_tokens > 0
                                                   ? std::min(text_tokens, options.sampling.context_length)
                                                   : options.sampling.context_length,
                             .overflow = corpus::parse_overflow(options.overflow, "--overflow"),
                             .tokens_per_batch = options.sampling.tokens_per_step * options.launch.world_size,
                             .most_queries = options.most_sequences,
                             .rank = options.launch.rank};
  if (retrieval.overflow == corpus::Overflow::kSplit)
    throw base::InputError(
        "--overflow split makes several texts of one, and an embedding is of a whole "
        "text: give truncate or drop");
  std::vector<std::vector<std::string>> partners{options.positives};
  if (!options.negatives.empty()) partners.push_back(options.negatives);
  const RetrievalCorpora corpora = RetrievalCorpora::open(options.corpora, partners, indexed);
  require_tokenizer(options, model);
  const int64_t longest = std::min(retrieval.context_length, corpora.longest_text(retrieval.most_queries));
  auto* const kept =
      new_evaluator(model, options, std::max<int64_t>(longest, 2), "the longest text (--context-length)");
  const std::unique_ptr<run::Evaluator> alone(options.launch.world_size == 1 ? kept : nullptr);
  const run::RetrievalScores scores = evaluate_retrieval(*kept, corpora, retrieval);
  if (options.launch.rank == 0) print(options, model, scores);
}

void run(EvalArguments options) {
  options.model = model_folder(options.model);
  run::ModelSource model = run::open_model(locate(options.model));
  std::vector<std::pair<std::string, double>> prefixes;
  for (const std::string& prefix : options.corpora) prefixes.emplace_back(prefix, 1.0);
  corpus::IndexedOptions indexed = corpus_places();
  indexed.vocabulary = model.model().vocab();
  if (!options.positives.empty()) return run_retrieval(model, options, indexed);
  if (!options.negatives.empty())
    throw base::InputError("--negatives are beside --positives: name those, too");
  corpus::Blend blend = corpus::Blend::open(prefixes, indexed);
  if (model.model().has_vocabulary()) {
    if (!options.scores.empty())
      throw base::InputError("--scores are numbers of a head (heads.md), and the model ends in a vocabulary");
    blend.require_targets();
  } else {
    label(blend, options, model.model());
  }
  require_tokenizer(options, model);
  const std::vector<corpus::Batch> batches = batches_of(blend, options);
  if (batches.empty()) {
    throw base::InputError("no document has 2 tokens or more under these options: nothing has a loss");
  }
  auto* const kept =
      new_evaluator(model, options, longest_in(batches), "the longest sequence (--context-length)");
  const std::unique_ptr<run::Evaluator> alone(options.launch.world_size == 1 ? kept : nullptr);
  run::Evaluator& evaluator = *kept;
  if (!options.logits.empty()) {
    run::write_logits(evaluator, blend, batches, {options.logits, options.logits_sequences});
  }
  const Outcome outcome = evaluate(evaluator, blend, batches, options);
  if (options.launch.rank == 0) print(options, model, outcome);
}

void run_as_told(EvalArguments options) {
  if (options.nproc != 1 && !options.logits.empty()) {
    throw base::InputError(text("--logits are one rank's: leave out --nproc ", options.nproc));
  }
  run_on_ranks(options.nproc, options.launch, [&] { run(options); });
}

void add_batching(CLI::App& command, EvalArguments& options) {
  command.add_flag("--other-tokenizer", options.other_tokenizer,
                   "Take corpora of another tokenizer than the model's");
  command.add_option("--context-length", options.sampling.context_length, "Longest sequence in tokens")
      ->check(within(int64_t{2}, int64_t{1} << 30))
      ->capture_default_str();
  command
      .add_option("--overflow", options.overflow,
                  "Longer documents: truncate, split (into several sequences) or drop")
      ->check(CLI::IsMember({"truncate", "split", "drop"}))
      ->capture_default_str();
  command
      .add_option(
          "--tokens-per-batch", options.sampling.tokens_per_step,
          "Tokens of a rank that go through the model at once; memory grows with it, the loss does not "
          "change")
      ->check(at_least(1))
      ->capture_default_str();
  command
      .add_option("--sequences", options.most_sequences, "Evaluate only the first so many sequences; 0: all")
      ->check(at_least(0))
      ->capture_default_str();
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", about_torch_command("eval"));
  auto options = std::make_shared<EvalArguments>();
  add_model_option(*command, *options);
  command->add_option("--corpus", options->corpora, "Corpora (prefixes of .bin and .idx)")->required();
  command->add_option(
      "--positives", options->positives,
      "Of embedding models: corpora of the texts that those of --corpus look for, in the same "
      "order; the result is how often they are found among all of them (heads.md)");
  command->add_option("--negatives", options->negatives,
                      "Beside --positives: corpora of texts that are not looked for, in the same order");
  add_batching(*command, *options);
  add_computing_options(*command, *options);
  command->add_option("--losses", options->losses,
                      "Write a JSON line for every sequence here: document, begin, length, targets, loss_sum "
                      "(sequences go through the model one by one)");
  command->add_option(
      "--scores", options->scores,
      "Write a JSON line for every sequence here: its document, and the numbers of the model's "
      "head (heads.md)");
  add_output(*command, "--logits", options->logits, Output::kFile,
             "Write tokens and logits of the first sequences here, as safetensors");
  command->add_option("--logits-sequences", options->logits_sequences, "How many sequences --logits writes")
      ->check(at_least(1))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the result as JSON");
  command
      ->add_option("--nproc", options->nproc,
                   "Start this many local ranks, which share the batches; 0: be one rank of the launcher")
      ->check(within(0, 4096))
      ->take_last()
      ->capture_default_str();
  command->add_option("--strategy", options->strategy,
                      "How ranks share the model, such as \"2x<2,1,1>\" (default: each holds all of it)");
  command->callback([options] { run_as_told(*options); });
}

}  // namespace sluice::cli
