// sluice corpus build: text, JSON and source trees into tokens.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "cli/chat_options.h"
#include "cli/command.h"
#include "cli/corpus_files.h"
#include "cli/environment.h"
#include "cli/model_folder.h"
#include "cli/outputs.h"
#include "cli/slow_notice.h"
#include "cli/tokenizers.h"
#include "corpus/build.h"

namespace sluice::cli {

using base::text;

namespace {

struct CorpusArguments {
  corpus::BuildOptions build;
  std::string delimiter;
  double sample_mb = 10;
  std::string part;
  std::string dedup = "none";
  bool prompts = false, pairs = false, labels = false, label_all_tokens = false;
  std::string label_key = "label";
  std::vector<std::string> columns;
  corpus::AnswerKeys keys;
  std::string margin_key;
  std::string chosen_key = "chosen", rejected_key = "rejected";
  bool json = false;
  const CLI::App* command = nullptr;
};

// "\n" -> newline, also \t, \r and \\.
std::string unescaped(const std::string& value) {
  std::string out;
  for (size_t i = 0; i < value.size(); ++i) {
    const size_t escape =
        value[i] == '\\' && i + 1 < value.size() ? std::string("ntr\\").find(value[i + 1]) : value.npos;
    if (escape == value.npos) {
      out += value[i];
    } else {
      out += "\n\t\r\\"[escape];
      ++i;
    }
  }
  return out;
}

// Shows a progress bar for each stage. A stage that counts nothing, as the training of a tokenizer, is named
// now and then.
class StageProgress {
 public:
  void operator()(std::string_view stage, int64_t done_bytes, int64_t total_bytes) {
    const bool again = !progress_ && done_bytes < total_bytes;  // the next corpus of two
    if (stage != stage_ || again) {
      stage_ = stage;
      progress_.emplace(stage_, total_bytes);
      uncounted_.emplace(text("at the stage '", stage_, "'"), std::chrono::seconds(5));
    }
    if (done_bytes > 0) uncounted_.reset();
    if (!progress_) return;  // the stage is finished and reported
    progress_->set(done_bytes);
    if (done_bytes < total_bytes) return;
    progress_->finish();
    progress_.reset();
  }

 private:
  std::string stage_;
  std::optional<base::Progress> progress_;
  std::optional<SlowNotice> uncounted_;
};

// The folders that a build will create. Folders that a failed build leaves empty are removed.
class NewFolders {
 public:
  explicit NewFolders(std::filesystem::path folder) {
    std::error_code error;
    for (; !folder.empty() && !std::filesystem::exists(folder, error); folder = folder.parent_path())
      missing_.push_back(folder);
  }
  ~NewFolders() {
    std::error_code error;
    for (const std::filesystem::path& folder : missing_) std::filesystem::remove(folder, error);
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<std::filesystem::path> missing_;  // the innermost first
};

int64_t other_files(const corpus::BuildResult& result) {
  int64_t files = 0;
  for (const auto& [ending, count] : result.inputs.other_endings) files += count;
  return files;
}

// ".rst 12, .so 3, 4 without ending, …": the most frequent endings first.
std::string endings_text(const corpus::BuildResult& result) {
  constexpr size_t kShown = 8;
  std::vector<std::pair<int64_t, std::string>> endings;
  for (const auto& [ending, count] : result.inputs.other_endings) endings.emplace_back(count, ending);
  std::ranges::sort(endings, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [count, ending] : endings) {
    if (texts.size() == kShown) {
      texts.emplace_back("…");
      break;
    }
    texts.push_back(ending.empty() ? text(count, " without ending") : text(ending, " ", count));
  }
  return base::join(texts, ", ");
}

// Warns of entries in folders that are not inputs: each kind with its first entry.
void warn_of_inputs(const corpus::Inputs& inputs) {
  const auto say = [](const corpus::Findings& found, std::string_view what, const char* end) {
    if (found.count > 0)
      base::log_warning(text(what, ": ", found.count, " (", found.shown(", "), "): ", end));
  };
  for (size_t i = 0; i < corpus::kPassedOverKinds; ++i)
    say(inputs.passed_over.kinds[i], corpus::description(static_cast<corpus::PassedOver>(i)), "passed over");
  corpus::Findings unsplit;
  for (const std::string& name : inputs.unsplit) unsplit.add(name);
  say(unsplit, "data in no split of its data set", "left out, as load_dataset does");
}

base::Json passed_over_json(const corpus::Inputs& inputs) {
  base::Json json = base::Json::object();
  for (size_t i = 0; i < corpus::kPassedOverKinds; ++i)
    json[std::string(corpus::key(static_cast<corpus::PassedOver>(i)))] = inputs.passed_over.kinds[i].count;
  json["unsplit_files"] = inputs.unsplit.size();
  return json;
}

// Warns if the number of rows read differs from the one in a data set's card.
void warn_of_rows(const corpus::BuildResult& result) {
  if (!result.part.is_whole()) return;
  for (size_t i = 0; i < result.inputs.sources.size(); ++i) {
    const corpus::InputSource& source = result.inputs.sources[i];
    const int64_t rows = result.encoded.sources[i].rows;
    if (!source.rows || *source.rows == rows) continue;
    base::log_warning(text(source.name, ": its card says that the split has ",
                           base::human_count(*source.rows), " rows, and ", base::human_count(rows),
                           " were read: fetch what is missing, or set num_examples right"));
  }
}

void warn_of_losses(const corpus::BuildResult& result) {
  const corpus::DocumentCounts& counts = result.encoded.counts;
  if (result.continued_documents > 0) {
    base::log_info(text("continued an interrupted build after its first ",
                        base::human_count(result.continued_documents, "document", "documents")));
  }
  if (counts.binary_files > 0)
    base::log_info(
        text(counts.binary_files, " files of directories or archives are not text and were left out"));
  if (!result.inputs.other_endings.empty()) {
    base::log_info(text("left out ", base::human_count(other_files(result), "file", "files"),
                        " of directories with other endings (", endings_text(result),
                        "); choose endings with --suffix"));
  }
  warn_of_inputs(result.inputs);
  warn_of_rows(result);
  if (counts.refused.count > 0) {
    base::log_warning(text(counts.refused.count, " documents cannot be read and were left out: ",
                           counts.refused.shown("; "), " (--strict ends at the first)"));
  }
  if (result.encoded.changed_documents > 0) {
    base::log_warning(text(result.encoded.changed_documents, " of ", counts.documents,
                           " documents do not decode to themselves with this tokenizer"));
  }
}

// "messages.name (12), source (40)": the most frequent keys first.
std::string keys_text(const std::map<std::string, int64_t>& keys) {
  constexpr size_t kShown = 20;
  std::vector<std::pair<std::string, int64_t>> sorted(keys.begin(), keys.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> texts;
  for (const auto& [key, documents] : sorted) {
    texts.push_back(texts.size() < kShown ? text(key, " (", documents, ")") : "…");
    if (texts.size() > kShown) break;
  }
  return base::join(texts, ", ");
}

void tell_of_chats(const corpus::BuildResult& result, const corpus::ChatOptions& options) {
  const corpus::ChatCounts& chats = result.encoded.chats;
  if (chats.rewritten_documents > 0) {
    base::log_warning(text(
        chats.rewritten_documents, " of ", result.encoded.counts.documents,
        " conversations: the chat template rewrites earlier messages, so ", chats.unlearnt_turns, " of ",
        chats.turns,
        " messages of the assistant have no loss; {% generation %} in the template marks those that have"));
  }
  if (chats.displaced_turns > 0) {
    base::log_warning(
        text(chats.displaced_turns,
             " messages of the assistant have other text in front than the chat template puts before "
             "an answer to the same messages: look at one with corpus show"));
  }
  if (chats.endless_turns > 0) {
    base::log_warning(text(chats.endless_turns, " of ", chats.turns,
                           " messages of the assistant end without an end token, so the model does not learn "
                           "to stop there: name a template that writes one with --chat-template"));
  }
  if (chats.control_tokens > 0) {
    base::log_info(text(base::human_count(chats.control_tokens, "control token", "control tokens"), " that ",
                        options.sanitize == "all" ? "somebody" : "others than the assistant",
                        " wrote were read as text (--sanitize ", options.sanitize, ")"));
  }
  if (chats.dated_documents > 0)
    base::log_info(text("the chat template writes a date: ", options.date, " (--chat-date)"));
  if (!chats.unread_keys.empty()) {
    base::log_info(text("keys of conversations that neither Sluice nor the chat template reads: ",
                        keys_text(chats.unread_keys)));
  }
}

base::Json to_json(const corpus::BuildResult& result) {
  base::Json json = {{"prefix", result.prefix.string()},
                     {"tokenizer", result.tokenizer.string()},
                     {"documents", result.encoded.counts.documents},
                     {"tokens", result.lengths.tokens()},
                     {"bytes", result.encoded.counts.bytes},
                     {"vocabulary", result.vocabulary},
                     {"begin_id", result.begin_id},
                     {"end_id", result.end_id},
                     {"continued_documents", result.continued_documents},
                     {"unigram_entropy_nats", result.unigram_entropy_nats()},
                     {"binary_files", result.encoded.counts.binary_files},
                     {"other_files", other_files(result)},
                     {"passed_over", passed_over_json(result.inputs)},
                     {"refused_documents", result.encoded.counts.refused.count},
                     {"first_refusals", result.encoded.counts.refused.first},
                     {"empty_documents", result.encoded.counts.empty_documents},
                     {"changed_documents", result.encoded.changed_documents},
                     {"loss_tokens", result.encoded.loss_tokens},
                     {"rewritten_documents", result.encoded.chats.rewritten_documents},
                     {"turns", result.encoded.chats.turns},
                     {"unlearnt_turns", result.encoded.chats.unlearnt_turns},
                     {"displaced_turns", result.encoded.chats.displaced_turns},
                     {"endless_turns", result.encoded.chats.endless_turns},
                     {"control_tokens_as_text", result.encoded.chats.control_tokens},
                     {"unread_keys", base::Json(result.encoded.chats.unread_keys)}};
  const base::Json lengths = corpus::lengths_json(result);
  for (const char* key : {"bytes_per_token", "loss_tokens", "over_context", "duplicates", "sources"})
    json[key] = lengths[key];
  json["card_rows"] = base::Json::array();  // for each source, null if no card has it
  for (const corpus::InputSource& source : result.inputs.sources)
    json["card_rows"].push_back(source.rows ? base::Json(*source.rows) : base::Json());
  if (!result.part.is_whole()) json["part"] = result.part.text();
  return json;
}

void print_text(const corpus::BuildResult& result) {
  if (result.lengths.empty()) {
    std::cout << text(result.prefix.string(), ": part ", result.part.text(), " holds no document\n");
    return;
  }
  const double bytes_per_token =
      static_cast<double>(result.encoded.counts.bytes) / static_cast<double>(result.lengths.tokens());
  std::cout << text(result.prefix.string(), ": ", base::human_count(result.encoded.counts.documents),
                    " documents, ", base::human_count(result.lengths.tokens()), " tokens of ",
                    base::human_count(result.vocabulary), " ids (", bytes_per_token, " bytes a token)",
                    around_documents(result.begin_id, result.end_id), "\n", "length: median ",
                    base::human_count(result.lengths.percentile(500'000)), ", 99 % up to ",
                    base::human_count(result.lengths.percentile(990'000)), ", longest ",
                    base::human_count(result.lengths.longest()), "\n",
                    "unigram entropy: ", result.unigram_entropy_nats(), " nats a token\n");
  if (result.duplicates() > 0)
    std::cout << text("left out: ", base::human_count(result.duplicates()), " documents that came before\n");
  if (!result.part.is_whole())
    std::cout << text("part ", result.part.text(), ": `sluice corpus merge` joins it to the others\n");
  if (result.encoded.loss_tokens > 0) {
    std::cout << text("with a loss: ", base::human_count(result.encoded.loss_tokens),
                      " tokens, those of the assistant\n");
  }
}

// "3/16" -> the third of sixteen.
void set_part(CorpusArguments& arguments) {
  corpus::BuildOptions& build = arguments.build;
  build.leave_out_duplicates = arguments.dedup == "exact";
  if (build.leave_out_duplicates && arguments.pairs)
    throw base::InputError("--dedup leaves out documents, but --pairs stand in the same order: remove one");
  if (arguments.part.empty()) return;
  constexpr int64_t kMostParts = 100'000;
  const size_t slash = arguments.part.find('/');
  const auto index = base::parse_integer(std::string_view(arguments.part).substr(0, slash));
  const auto count = slash == std::string::npos
                         ? std::nullopt
                         : base::parse_integer(std::string_view(arguments.part).substr(slash + 1));
  if (!index || !count || *count < 1 || *count > kMostParts || *index < 1 || *index > *count) {
    throw base::InputError(
        text("--part is '", arguments.part, "': give I/N, I from 1 to N, N at most ", kMostParts));
  }
  if (build.train_vocabulary > 0)
    throw base::InputError("parts need one tokenizer: train it first, and give it to each with --tokenizer");
  build.part = {*index - 1, *count};
}

// Documents of classifiers end with the tokens that the model's tokenizer adds to a text, as elsewhere.
void add_labels(CorpusArguments& arguments) {
  corpus::BuildOptions& build = arguments.build;
  if (arguments.prompts || arguments.pairs)
    throw base::InputError("--labels are of texts and conversations: leave out --prompts and --pairs");
  if (build.train_vocabulary > 0)
    throw base::InputError(
        "--labels need the tokenizer of the model that learns them: give --tokenizer FOLDER");
  build.documents.label_key = arguments.label_key;
  if (arguments.label_all_tokens) build.documents.label_pieces = corpus::LabelledPieces::kAll;
  if (build.tokenizer.end_token.empty()) build.tokenizer.end_token = corpus::kAddedToken;
}

// The texts of a group have the same index in corpora that are named like their columns. No option may leave
// out or cut one of them alone.
void set_columns(CorpusArguments& arguments) {
  corpus::BuildOptions& build = arguments.build;
  const std::set<std::string> all(arguments.columns.begin(), arguments.columns.end());
  const bool named = std::ranges::none_of(all, [](const std::string& column) {
    return column.empty() || column == "." || column == ".." || column.find('/') != column.npos;
  });
  if (all.size() != arguments.columns.size() || all.size() < 2 || !named)
    throw base::InputError(text("--columns is ", base::join(arguments.columns, ","),
                                ": give two names or more, as anchor,positive, each a folder of --out"));
  if (arguments.prompts || arguments.pairs || arguments.labels || build.documents.chats)
    throw base::InputError("--columns are texts: leave out --chat, --prompts, --pairs and --labels");
  if (build.train_vocabulary > 0)
    throw base::InputError("--columns share a tokenizer: give it with --tokenizer");
  if (!arguments.delimiter.empty() || arguments.dedup != "none")
    throw base::InputError("--columns keep their texts beside each other: leave out --delimiter and --dedup");
  build.documents.columns = arguments.columns;
  if (build.tokenizer.end_token.empty()) build.tokenizer.end_token = corpus::kAddedToken;
}

// Builds the corpora that the arguments ask for: one, or one for each text of a group.
void build_all(CorpusArguments& arguments, const std::function<void(const std::string& name)>& build_one) {
  corpus::BuildOptions& build = arguments.build;
  if (!arguments.pairs && arguments.columns.empty()) return build_one("corpus");
  const std::filesystem::path folder = build.directory;
  for (const std::string& column : arguments.columns) {
    build.directory = folder / column;
    build.documents.text_key = column;
    build_one(column);
  }
  const std::pair<const char*, const std::string&> sides[] = {{"chosen", arguments.chosen_key},
                                                              {"rejected", arguments.rejected_key}};
  for (size_t side = 0; arguments.pairs && side < 2; ++side) {
    build.directory = folder / sides[side].first;
    build.documents.answers->answer = sides[side].second;
    build.documents.answers->other_answer = sides[1 - side].second;
    build_one(sides[side].first);
  }
}

// A newly trained tokenizer may get a chat template, whatever text it is trained on.
void check_chat_options(const CorpusArguments& arguments) {
  const bool trains = arguments.build.train_vocabulary > 0;
  if (!arguments.build.documents.chats)
    refuse_chat_options(*arguments.command, "give --chat with it", trains ? "--chat-template" : "");
  if (trains && arguments.pairs)
    throw base::InputError(
        "--pairs are two corpora of one tokenizer: train it first, on conversations with --chat, and give "
        "that "
        "corpus with --tokenizer");
}

void run(const std::shared_ptr<CorpusArguments>& arguments) {
  corpus::BuildOptions& build = arguments->build;
  if (build.tokenizer_file.empty() == (build.train_vocabulary == 0)) {
    throw base::InputError("choose a tokenizer: either --tokenizer FILE or --train-tokenizer VOCAB");
  }
  build.tokenizer_file = model_folder(build.tokenizer_file.string(), HubFiles::kTokenizer);
  if (arguments->prompts && arguments->pairs)
    throw base::InputError("--prompts have one answer, --pairs have two: give one of the two");
  if (arguments->prompts || arguments->pairs) {
    build.documents.chats = true;
    build.documents.answers = arguments->keys;
  }
  if (arguments->labels) add_labels(*arguments);
  if (arguments->label_all_tokens && !arguments->labels)
    throw base::InputError("--label-all-tokens is of words with --labels: add --labels, or leave it out");
  if (!arguments->columns.empty()) set_columns(*arguments);
  if (!arguments->margin_key.empty() && !arguments->pairs)
    throw base::InputError("--margin-key is of --pairs: add --pairs, or leave it out");
  if (arguments->pairs) build.documents.label_key = arguments->margin_key;
  check_chat_options(*arguments);
  if (build.tokenizer.chat.date.empty()) build.tokenizer.chat.date = date_of_builds();
  set_part(*arguments);
  if (arguments->sample_mb < 0.001)
    throw base::InputError(text("--sample-mb is ", arguments->sample_mb, ": give 0.001 or more"));
  build.sample_bytes = static_cast<int64_t>(arguments->sample_mb * 1e6);
  build.documents.delimiter = unescaped(arguments->delimiter);
  build.documents.tools = build.finding.tools = build.tokenizer.tools = python_tools();
  build.finding.locate = [](const std::string& name) { return locate(name); };
  auto progress = std::make_shared<StageProgress>();
  build.on_progress = [progress](std::string_view stage, int64_t done, int64_t total) {
    (*progress)(stage, done, total);
  };
  base::Json told = base::Json::object();
  const auto build_one = [&](const std::string& name) {
    const NewFolders folders(build.directory);
    const corpus::BuildResult result = corpus::build_corpus(build);
    progress.reset();
    warn_of_losses(result);
    tell_of_chats(result, build.tokenizer.chat);
    if (!arguments->json) print_text(result);
    told[name] = to_json(result);
  };
  build_all(*arguments, build_one);
  const bool one = !arguments->pairs && arguments->columns.empty();
  if (arguments->json) std::cout << base::json_text(one ? told["corpus"] : told, 2) << "\n";
}

}  // namespace

void add_corpus(CLI::App& app) {
  CLI::App* corpus = app.add_subcommand("corpus", "Make corpora, merge them, show their documents");
  corpus->require_subcommand(1);
  add_corpus_merge(*corpus);
  add_corpus_show(*corpus);
  CLI::App* build = corpus->add_subcommand("build", "Text, JSON, tables or source trees into tokens");
  auto arguments = std::make_shared<CorpusArguments>();
  arguments->command = build;
  corpus::BuildOptions& options = arguments->build;
  build
      ->add_option("inputs", options.inputs,
                   "Text files (a document each), JSON Lines or lists, .gz, .zst and .bz2 of these, Parquet, "
                   "directories, folders of Hugging Face data sets")
      ->required();
  add_output(*build, "--out", options.directory, Output::kFolder,
             "Directory for corpus.bin, corpus.idx, tokenizer.model, lengths.json")
      ->required();
  build->add_option(
      "--tokenizer", options.tokenizer_file,
      "SentencePiece model, Hugging Face tokenizer.json, a folder with either, or a model of the hub "
      "(ORGANISATION/NAME)");
  build->add_option("--train-tokenizer", options.train_vocabulary,
                    "Train a SentencePiece model of this many pieces; with --chat or --chat-template a "
                    "tokenizer.json that can chat, by ChatML unless a template is named");
  build->add_flag(
      "--chat", options.documents.chats,
      "Inputs are conversations, JSON objects with messages: render them by the tokenizer's chat template "
      "and write corpus.mask, which gives only the assistant's tokens a loss");
  build->add_flag("--prompts", arguments->prompts,
                  "Inputs are problems and answers, JSON objects with prompt and answer, each a text or a "
                  "list of messages: as --chat of a user and an assistant");
  build->add_flag("--pairs", arguments->pairs,
                  "Inputs are prompts with two answers, chosen and rejected: two corpora, in --out's chosen "
                  "and rejected");
  build->add_flag(
      "--labels", arguments->labels,
      "Inputs are JSON objects with text, or with --chat messages, and label: a class, a list of "
      "classes, or figures, which go into corpus.labels; or with a list of words (tokens) and a label "
      "for each (labels, ner_tags or tags); --end-token is then added");
  build->add_flag("--label-all-tokens", arguments->label_all_tokens,
                  "With --labels of words: every token of a word has its label (default: the first one "
                  "alone)");
  build->add_option("--label-key", arguments->label_key, "Key of the label, with --labels")
      ->capture_default_str();
  build
      ->add_option(
          "--columns", arguments->columns,
          "Inputs are JSON objects or tables with texts that belong together, under these keys: a corpus for "
          "each, in --out's folder of that name, all in the same order")
      ->delimiter(',')
      ->allow_extra_args(false);
  build->add_option("--prompt-key", arguments->keys.prompt, "Key of the prompt, with --prompts and --pairs")
      ->capture_default_str();
  build->add_option("--answer-key", arguments->keys.answer, "Key of the answer, with --prompts")
      ->capture_default_str();
  build->add_option("--chosen-key", arguments->chosen_key, "Key of the better answer, with --pairs")
      ->capture_default_str();
  build->add_option("--rejected-key", arguments->rejected_key, "Key of the worse answer, with --pairs")
      ->capture_default_str();
  build->add_option(
      "--margin-key", arguments->margin_key,
      "With --pairs: key of the margin by which the chosen answer's reward is to lead, written to "
      "corpus.labels (default: no margins)");
  add_chat_options(*build, options.tokenizer.chat);
  build->add_option("--sample-mb", arguments->sample_mb, "Megabytes of text that training reads at most")
      ->capture_default_str();
  build->add_option("--delimiter", arguments->delimiter,
                    "Cut documents after this text as well; \\n, \\t, \\r and \\\\ are understood");
  build
      ->add_option("--text-key,--json-key", options.documents.text_key,
                   "Key of the text in JSON objects, column of tables")
      ->capture_default_str();
  build->add_option("--suffix", options.finding.suffixes, "Endings of the files taken from directories")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  build
      ->add_option("--exclude", options.finding.exclude,
                   "Names of files and folders passed over in directories (* and ? allowed)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  build->add_option(
      "--end-token", options.tokenizer.end_token,
      "Token that ends documents; none; or added, what the tokenizer itself adds to a text, as models with a "
      "head read it (default: the tokenizer's own)");
  build->add_option("--begin-token", options.tokenizer.begin_token,
                    "Token in front of documents, or none (default: what the tokenizer puts there)");
  build->add_option("--split", options.finding.dataset.split, "Split of data sets that have several")
      ->capture_default_str();
  build->add_option(
      "--subset", options.finding.dataset.subset,
      "Configuration of data sets that have several (default: the one that their card calls so)");
  build->add_flag(
      "--strict", options.documents.strict,
      "End at the first document that cannot be read; otherwise such documents are left out, counted, "
      "and the first three shown");
  build->add_option("--part", arguments->part,
                    "I/N: only the I-th of N parts of all inputs, for N machines; `corpus merge` joins them");
  build
      ->add_option("--dedup", arguments->dedup, "exact: leave out documents that came before, and count them")
      ->check(CLI::IsMember({"none", "exact"}))
      ->capture_default_str();
  build->add_option("--threads", options.threads, "Threads that tokenize; 0: one a core")
      ->capture_default_str();
  add_python_option(*build);
  build->add_flag("--json", arguments->json, "Print the result as JSON");
  build->callback([arguments] { run(arguments); });
}

}  // namespace sluice::cli
