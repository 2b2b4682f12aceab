#include "run/export_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/log_softmax.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "checkpoint/companions.h"
#include "checkpoint/merge.h"
#include "corpus/indexed.h"
#include "model/parameter_count.h"
#include "model/table_positions.h"
#include "model/tuning.h"
#include "profile/machine.h"
#include "run/evaluator.h"
#include "run/learnt_turns.h"
#include "run/model_source.h"

namespace sluice::run {
namespace {

namespace fs = std::filesystem;
using base::text;
using checkpoint::Companion;
using Sequences = std::vector<std::vector<int64_t>>;

constexpr int64_t kSequences = 3, kLongest = 128;
// Both sides round alike; the remaining difference comes from threads that divide sums differently.
constexpr double kAllowed = 1e-5;

[[noreturn]] void differs(const fs::path& folder, const std::string& what) {
  throw base::RunError(text(folder.string(), " is not the model that was trained: ", what,
                            "; the folder is left as it is for a look, so don't use it"));
}

// The tokens of a sequence for the comparison: at most the positions that the model has learnt.
int64_t longest_of(const model::Model& model) {
  return model.positions() > 0 ? std::min(model.positions(), kLongest) : kLongest;
}

// The first tokens of the corpora's documents, if the model has all their tokens.
Sequences from_corpora(const config::RunConfig& run, int64_t vocabulary, int64_t longest) {
  Sequences sequences;
  for (const auto& [prefix, weight] : run.data.train) {
    try {
      const corpus::IndexedCorpus corpus(prefix, {.vocabulary = vocabulary});
      for (int64_t document = 0; document < std::min(corpus.documents(), 8 * kSequences); ++document) {
        const int64_t length = std::min(corpus.length(document), longest);
        if (length < 2 || std::ssize(sequences) == kSequences) continue;
        std::vector<int32_t> tokens(static_cast<size_t>(length));
        corpus.read(document, 0, length, tokens.data());
        sequences.emplace_back(tokens.begin(), tokens.end());
      }
    } catch (const base::Error&) {
      return {};  // the corpus has moved since
    }
  }
  return sequences;
}

Sequences sequences_for(const std::optional<config::RunConfig>& run, int64_t vocabulary, int64_t longest) {
  if (run) {
    Sequences sequences = from_corpora(*run, vocabulary, longest);
    if (!sequences.empty()) return sequences;
  }
  Sequences sequences;
  base::Rng draw(1);
  for (const int64_t length : {longest / 4, longest / 2, longest}) {
    std::vector<int64_t>& tokens = sequences.emplace_back();
    for (int64_t i = 0; i < length; ++i)
      tokens.push_back(static_cast<int64_t>(draw.below(static_cast<uint64_t>(vocabulary))));
  }
  return sequences;
}

// The mean of the numbers of a head that replaces a vocabulary's.
double mean_number(Evaluator& evaluator, const Sequences& sequences) {
  double sum = 0;
  for (const std::vector<int64_t>& tokens : sequences)
    sum += evaluator.logits(tokens).to(at::kDouble).mean().item<double>();
  return sum / static_cast<double>(sequences.size());
}

double mean_loss(ModelSource& model, const Sequences& sequences) {
  EvaluatorOptions options;
  const int64_t longest = longest_of(model.model());
  options.context_length = model::table_positions(model.model(), longest, longest);
  options.device = config::DeviceChoice::kCpu;
  Evaluator evaluator(model, options);
  if (!model.model().has_vocabulary()) return mean_number(evaluator, sequences);
  double sum = 0;
  int64_t targets = 0;
  for (const std::vector<int64_t>& tokens : sequences) {
    const at::Tensor scores = at::log_softmax(evaluator.logits(tokens).to(at::kDouble), 1).contiguous();
    const double* const values = scores.const_data_ptr<double>();
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      sum -= values[static_cast<int64_t>(i) * scores.size(1) + tokens[i + 1]];
    targets += std::ssize(tokens) - 1;
  }
  return sum / static_cast<double>(targets);
}

// Needed memory: masters of one model at a time, and the parameters for compute.
std::string too_large(const model::Model& model) {
  const int64_t needed = 12 * model::parameter_count(model);
  const int64_t available = profile::this_machine().available_bytes;
  if (needed < available) return "";
  return text("its loss takes ", base::human_bytes(static_cast<double>(needed)), " of memory, of which ",
              base::human_bytes(static_cast<double>(available)), " are free");
}

void check_losses(checkpoint::Checkpoint& checkpoint, const fs::path& folder,
                  const checkpoint::ExportOptions& options, const std::optional<config::RunConfig>& run,
                  ExportCheck& check) {
  const model::ParameterTable& tuned = checkpoint.plain_table();
  const model::ParameterTable plain = model::parameter_table(model::untuned(tuned.model));
  ModelSource exported = open_model(storage::Location(folder));
  if (exported.model() != plain.model) differs(folder, "its config.json describes another model");
  check.without_loss = too_large(plain.model);
  if (!check.without_loss.empty()) return;
  const Sequences sequences = sequences_for(run, plain.model.vocab(), longest_of(plain.model));
  ModelSource trained;
  trained.values = ModelSource::Values{
      plain.model,
      checkpoint::as_written(plain, checkpoint::merged(plain, tuned, checkpoint::float_masters(checkpoint)),
                             options)};
  const double expected = mean_loss(trained, sequences);
  check.loss = mean_loss(exported, sequences);
  check.sequences = std::ssize(sequences);
  if (std::abs(check.loss - expected) <= kAllowed * std::max(1.0, std::abs(expected))) return;
  differs(folder, text("its loss is ", check.loss, " where the checkpoint's is ", expected));
}

std::string listed(const std::vector<int64_t>& tokens) {
  std::vector<std::string> texts;
  for (const int64_t token : tokens) texts.push_back(std::to_string(token));
  return tokens.empty() ? "none" : base::join(texts, ", ");
}

// Compares the companion files of the exported model with the expected ones.
void check_companions(const fs::path& folder, const std::vector<Companion>& expected,
                      const std::optional<config::RunConfig>& run, ExportCheck& check) {
  const std::vector<Companion> found = checkpoint::read_companions(folder);
  check.end_tokens = end_tokens_in(found);
  const std::vector<int64_t> ends = end_tokens_in(expected);
  if (check.end_tokens != ends)
    differs(folder,
            text("its end tokens are ", listed(check.end_tokens), " where the run's are ", listed(ends)));
  const std::string chat_template = chat_template_in(found);
  check.has_template = !chat_template.empty();
  if (chat_template != chat_template_in(expected))
    differs(folder, "its chat template is another than the run's");
  for (const Companion& file : expected) {
    if (!file.name.starts_with("tokenizer.") && file.name != "vocab.json" && file.name != "vocab.txt")
      continue;
    const auto same = std::ranges::find(found, file.name, &Companion::name);
    if (same == found.end() || same->bytes != file.bytes)
      differs(folder, text("its ", file.name, " is another"));
    if (check.tokenizer.empty()) check.tokenizer = file.name;
  }
  if (!run) return;
  for (const corpus::TurnEnd& end : learnt_turn_ends(run->data)) {
    if (std::ranges::find(check.end_tokens, end.id) == check.end_tokens.end())
      differs(folder, text("messages with a loss end with ", end.text, " (", end.id,
                           "), which is none of its end tokens"));
  }
}

}  // namespace

std::string ExportCheck::line() const {
  return text("checked: loaded again, ",
              without_loss.empty() ? text("it has the loss of the checkpoint, ", loss, " nats over ",
                                          sequences, sequences == 1 ? " sequence" : " sequences")
                                   : "losses were not compared as " + without_loss,
              "; end tokens ", listed(end_tokens), "; ",
              has_template ? "a chat template" : "no chat template", "; ",
              tokenizer.empty() ? "no tokenizer" : tokenizer);
}

ExportCheck check_export(checkpoint::Checkpoint& checkpoint, const fs::path& folder,
                         const checkpoint::ExportOptions& options,
                         const std::optional<config::RunConfig>& run) {
  ExportCheck check;
  check_losses(checkpoint, folder, options, run, check);
  check_companions(folder, options.companions, run, check);
  return check;
}

}  // namespace sluice::run
