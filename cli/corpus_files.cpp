// sluice corpus merge and sluice corpus show.
#include "cli/corpus_files.h"

#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/environment.h"
#include "cli/outputs.h"
#include "cli/tokenizers.h"
#include "corpus/indexed.h"
#include "corpus/load_tokenizer.h"
#include "corpus/merge.h"

namespace sluice::cli {

using base::human_count;
using base::text;

namespace {

struct Merge {
  corpus::MergeOptions options;
  bool json = false;
};

void merge(const Merge& arguments) {
  std::unique_ptr<base::Progress> progress;
  corpus::MergeOptions options = arguments.options;
  options.on_progress = [&](int64_t done, int64_t total) {
    if (!progress) progress = std::make_unique<base::Progress>("merge", total);
    progress->set(done);
  };
  const corpus::MergeResult result = corpus::merge_corpora(options);
  progress.reset();
  if (arguments.json) {
    base::Json json = {{"prefix", result.prefix.string()},
                       {"documents", result.lengths.documents()},
                       {"tokens", result.lengths.tokens()},
                       {"masked", result.masked}};
    if (result.build) {  // parts of one build: add its counts, not its lengths
      const base::Json counts = corpus::lengths_json(*result.build);
      for (const auto& [key, value] : counts.items())
        if (key != "lengths" && key != "histogram" && key != "schema") json[key] = value;
    }
    std::cout << base::json_text(json, 2) << "\n";
    return;
  }
  std::cout << text(result.prefix.string(), ": ", human_count(result.lengths.documents()), " documents, ",
                    human_count(result.lengths.tokens()), " tokens", result.masked ? ", masked" : "", "\n");
}

struct Show {
  std::filesystem::path corpus;
  std::vector<int64_t> documents;
  std::filesystem::path tokenizer;
  bool ids = false;
  bool json = false;
};

void show_document(const corpus::IndexedCorpus& corpus, int64_t document, const corpus::Tokenizer* tokenizer,
                   const Show& arguments) {
  const std::vector<int32_t> tokens = corpus.read(document);
  if (arguments.json) {
    base::Json json = {{"document", document}, {"tokens", tokens.size()}, {"ids", tokens}};
    if (corpus.has_mask()) {
      std::vector<uint8_t> mask(tokens.size());
      corpus.read_mask(document, 0, corpus.length(document), mask.data());
      json["mask"] = mask;
    }
    if (tokenizer != nullptr) json["text"] = tokenizer->decode(tokens);
    std::cout << base::json_text(json) << "\n";
    return;
  }
  std::vector<std::string> ids;
  for (const int32_t token : tokens) ids.push_back(text(token));
  const std::string content = arguments.ids ? base::join(ids, " ") : tokenizer->decode(tokens);
  std::cout << text("document ", document, ", ", tokens.size(), " tokens:\n", content,
                    content.ends_with('\n') ? "" : "\n");
}

void show(const Show& arguments) {
  const corpus::IndexedCorpus corpus(arguments.corpus, corpus_places());
  std::unique_ptr<corpus::Tokenizer> tokenizer;
  if (!arguments.tokenizer.empty()) {
    tokenizer = open_tokenizer(arguments.tokenizer);
  } else if (!arguments.ids) {
    tokenizer = tokenizer_beside(corpus.prefix());
  }
  if (!tokenizer && !arguments.ids && !arguments.json) {
    throw base::InputError(text("no tokenizer lies beside ", corpus.prefix().string(),
                                ": name one with --tokenizer, or print --ids"));
  }
  for (const int64_t document : arguments.documents) {
    if (document < 0 || document >= corpus.documents()) {
      throw base::InputError(text("there is no document ", document, " in ", corpus.prefix().string(),
                                  ": it has ", corpus.documents(), ", counted from 0"));
    }
    show_document(corpus, document, tokenizer.get(), arguments);
  }
}

}  // namespace

void add_corpus_merge(CLI::App& corpus) {
  CLI::App* command = corpus.add_subcommand("merge", "Several corpora, or all parts of a build, into one");
  auto arguments = std::make_shared<Merge>();
  command->add_option("corpora", arguments->options.corpora, "Prefixes of corpora made with one tokenizer")
      ->required();
  add_output(*command, "--out", arguments->options.directory, Output::kFolder, "Directory for the corpus")
      ->required();
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments] { merge(*arguments); });
}

void add_corpus_show(CLI::App& corpus) {
  CLI::App* command = corpus.add_subcommand("show", "Print documents of a corpus as text");
  auto arguments = std::make_shared<Show>();
  command->add_option("corpus", arguments->corpus, "Prefix of the corpus")->required();
  command->add_option("documents", arguments->documents, "Numbers of documents, from 0")->required();
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer (default: the one beside the corpus)");
  command->add_flag("--ids", arguments->ids, "Print token ids instead of text");
  add_python_option(*command);
  command->add_flag("--json", arguments->json, "Print a line of JSON for each document");
  command->callback([arguments] { show(*arguments); });
}

}  // namespace sluice::cli
