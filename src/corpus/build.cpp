#include "corpus/build.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/build_result.h"
#include "corpus/chat_tokenizer_trainer.h"
#include "corpus/encoding.h"
#include "corpus/indexed.h"
#include "corpus/input_copies.h"
#include "corpus/load_tokenizer.h"
#include "corpus/sentencepiece_tokenizer.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

constexpr const char* kChatTemplate = "chat_template.jinja";
constexpr uint64_t kSampleSeed = 0x73616D706C65;

int64_t total_bytes(const std::vector<InputFile>& files) {
  int64_t bytes = 0;
  for (const InputFile& file : files) bytes += file.size_bytes;
  return bytes;
}

void report(const BuildOptions& options, std::string_view stage, int64_t done_bytes, int64_t all_bytes) {
  if (options.on_progress) options.on_progress(stage, std::min(done_bytes, all_bytes), all_bytes);
}

// Gives a trainer whole documents, drawn evenly from all inputs.
template <typename Trainer>
void add_sample(const std::vector<InputFile>& files, const BuildOptions& options, Trainer& trainer) {
  const int64_t all_bytes = std::max<int64_t>(total_bytes(files), 1);
  const auto sample_bytes = static_cast<uint64_t>(options.sample_bytes);
  DocumentCounts counts;
  uint64_t document = 0;
  int64_t done_bytes = 0;
  InputCopies copies(files, options.directory / "corpus.unfinished" / "inputs", [](size_t) { return true; });
  for (size_t i = 0; i < files.size(); ++i) {
    const InputFile& file = files[i];
    if (trainer.full()) break;
    read_documents(copies.open(i), options.documents, counts, [&](RawDocument&& raw) {
      if (trainer.full()) return;
      const auto draw = [&](std::string_view whole) {
        base::Rng drawn(kSampleSeed, document++);
        if (drawn.below(static_cast<uint64_t>(all_bytes)) < sample_bytes) trainer.add(whole);
      };
      if (!options.documents.chats) {
        texts_of(raw, options.documents, counts, draw);
      } else if (const auto chat = chat_of(raw, options.documents, counts)) {
        draw(*chat);
      }
      report(options, "read sample", done_bytes + raw.read_bytes, all_bytes);
    });
    done_bytes += file.size_bytes;
  }
  report(options, "read sample", all_bytes, all_bytes);
  report(options, "train tokenizer", 0, trainer.taken_bytes());
}

std::string train_model(const std::vector<InputFile>& files, const BuildOptions& options) {
  SentencePieceTrainer trainer(options.sample_bytes);
  add_sample(files, options, trainer);
  std::string model = trainer.train(options.train_vocabulary);
  report(options, "train tokenizer", trainer.taken_bytes(), trainer.taken_bytes());
  return model;
}

// Whether the tokenizer to be trained gets a chat template.
bool trains_for_chats(const BuildOptions& options) {
  return options.train_vocabulary > 0 &&
         (options.documents.chats || !options.tokenizer.chat.chat_template.empty());
}

// Files that influence the rendering of conversations: the template's text if it is a file or was chosen,
// other templates that a conversation may select, and the generation settings, which list end tokens.
using ChatFiles = std::map<std::string, std::string>;

ChatFiles chat_files(const BuildOptions& options) {
  const bool trained_here = options.train_vocabulary > 0;
  if (!options.documents.chats && !trained_here) return {};
  const fs::path folder = options.tokenizer_file.parent_path();
  ChatFiles files = {{kChatTemplate, template_text(options.tokenizer.chat, options.tokenizer_file)}};
  for (const std::string name : {"generation_config.json", "chat_template.json"}) {
    if (fs::exists(folder / name)) files[name] = base::read_file(folder / name);
  }
  if (options.tokenizer.chat.chat_template.empty() && fs::is_directory(folder / kMoreTemplates)) {
    for (const auto& entry : fs::directory_iterator(folder / kMoreTemplates)) {
      if (entry.path().extension() != ".jinja") continue;
      files[text(kMoreTemplates, "/", entry.path().filename().string())] = base::read_file(entry.path());
    }
  }
  return files;
}

// Whether rendered conversations may contain the date.
bool may_be_dated(const ChatFiles& files, const std::string& config) {
  const auto asks = [](const std::string& bytes) { return bytes.find("strftime_now") != bytes.npos; };
  return asks(config) || std::ranges::any_of(files, [&](const auto& file) { return asks(file.second); });
}

// Adds the options that determine how a corpus is made from its inputs.
void add_options(const BuildOptions& options, base::CanonicalBytes& bytes) {
  bytes.add(options.documents.text_key).add(options.documents.delimiter).add(options.documents.label_key);
  bytes.add(options.documents.label_pieces == LabelledPieces::kAll ? 1 : 0);
  for (const std::string& column : options.documents.columns) bytes.add(column);
  bytes.add(options.train_vocabulary).add(options.sample_bytes);
  bytes.add(options.documents.strict ? 1 : 0).add(options.documents.chats ? 1 : 0);
  bytes.add(options.leave_out_duplicates ? 1 : 0);
  bytes.add(options.tokenizer.begin_token).add(options.tokenizer.end_token);
  if (trains_for_chats(options)) {
    const fs::path told_file = options.tokenizer.chat.chat_template;
    const std::string content = fs::is_regular_file(told_file) ? base::read_file(told_file) : "";
    ChatOptions told = options.tokenizer.chat;
    told.answers = options.documents.answers;
    if (!may_be_dated({{kChatTemplate, content}}, "")) told.date.clear();
    bytes.add(content).add(options_text(told));
  }
  if (!options.tokenizer_file.empty()) {
    const fs::path path = options.tokenizer_file.parent_path() / "tokenizer_config.json";
    const std::string config = fs::exists(path) ? base::read_file(path) : "";
    const ChatFiles chat = chat_files(options);
    bytes.add(base::read_file(options.tokenizer_file)).add(config);
    for (const auto& [name, content] : chat) bytes.add(name).add(content);
    ChatOptions told = options.tokenizer.chat;
    told.answers = options.documents.answers;
    if (!may_be_dated(chat, config)) told.date.clear();
    bytes.add(options_text(told));
  }
}

// A fingerprint that all parts of a build share, on any machine: inputs count by their names relative to the
// named path, and by size.
std::string common_fingerprint_of(const Inputs& inputs, const BuildOptions& options) {
  base::CanonicalBytes bytes;
  for (const InputFile& file : inputs.files) {
    const std::string& source = inputs.sources[file.source].name;
    const std::string name = file.path.string();
    const bool below = name.size() > source.size() && name.starts_with(source);
    bytes.add(below ? name.substr(source.size()) : file.path.filename().string()).add(file.size_bytes);
    bytes.add(static_cast<int64_t>(file.source))
        .add(static_cast<int64_t>(file.text_rows))
        .add(file.separator);
  }
  bytes.add(options.part.count);
  add_options(options, bytes);
  return base::hash_text(bytes.hash());
}

// Fingerprint of inputs and options: builds with equal fingerprints write the same bytes.
std::string fingerprint_of(const std::vector<InputFile>& files, const BuildOptions& options) {
  base::CanonicalBytes bytes;
  for (const InputFile& file : files) {
    bytes.add(file.path.string()).add(file.size_bytes).add(file.from_directory ? 1 : 0).add(file.version);
    bytes.add(static_cast<int64_t>(file.text_rows)).add(file.separator);
  }
  bytes.add(options.part.index);
  add_options(options, bytes);
  return base::hash_text(bytes.hash());
}

// The tokenizer of a build, ready for `workers` threads.
struct BuildTokenizer {
  std::string model;   // bytes of the tokenizer's file
  std::string config;  // bytes of the tokenizer_config.json beside it; empty: none
  ChatFiles chat;
  bool hugging_face = false;
  int workers = 1;
  std::unique_ptr<Tokenizer> tokenizer;
};

// Trains a tokenizer for chats by the script, and returns the same options with it as a given tokenizer. Its
// own template is the given one.
BuildOptions with_chat_tokenizer(const std::vector<InputFile>& files, const BuildOptions& options,
                                 Unfinished& unfinished) {
  const fs::path folder = unfinished.folder() / "tokenizer";
  BuildOptions given = options;
  given.tokenizer_file = folder / "tokenizer.json";
  if (!fs::exists(given.tokenizer_file)) {
    TokenizerOptions told = options.tokenizer;
    told.chats = options.documents.chats;
    told.chat.answers = options.documents.answers;
    ChatTokenizerTrainer trainer(folder, options.train_vocabulary, told, options.sample_bytes);
    add_sample(files, options, trainer);
    trainer.train();
    report(options, "train tokenizer", trainer.taken_bytes(), trainer.taken_bytes());
    unfinished.save({});
  }
  given.tokenizer.chat.chat_template.clear();
  return given;
}

BuildTokenizer make_tokenizer(const std::vector<InputFile>& files, const BuildOptions& options,
                              Unfinished& unfinished) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : cores;
  BuildTokenizer made;
  made.hugging_face = options.tokenizer_file.extension() == ".json";
  TokenizerOptions told = options.tokenizer;
  told.chats = options.documents.chats;
  told.chat.answers = options.documents.answers;
  told.needs_end = true;
  told.threads = 1;  // Python holds one lock a process, so each thread has a process of its own
  made.workers = told.callers = threads;
  if (!options.tokenizer_file.empty()) {
    made.model = base::read_file(options.tokenizer_file);
    const fs::path config = options.tokenizer_file.parent_path() / "tokenizer_config.json";
    if (fs::exists(config)) made.config = base::read_file(config);
    made.chat = chat_files(options);
    made.tokenizer = load_tokenizer(options.tokenizer_file, told);
    return made;
  }
  const fs::path trained = unfinished.folder() / "tokenizer.model";
  if (!fs::exists(trained)) {
    base::write_file_atomically(trained, train_model(files, options));
    unfinished.save({});
  }
  made.model = base::read_file(trained);
  made.tokenizer = std::make_unique<SentencePieceTokenizer>(made.model, "the trained tokenizer", told);
  return made;
}

// The tokenizer_config.json beside the corpus: the tokenizer's own, with the begin and end tokens that were
// chosen for documents, so that every reader of the corpus finds them.
std::string config_beside(const std::string& own, const TokenizerOptions& told) {
  const bool chose_end =
      !told.end_token.empty() && told.end_token != kNoToken && told.end_token != kAddedToken;
  if (told.begin_token.empty() && !chose_end) return own;
  base::Json config = base::Json::object();
  if (!own.empty()) config = base::parse_python_json(own, "tokenizer_config.json");
  if (!config.is_object()) return own;
  if (!told.begin_token.empty()) config["add_bos_token"] = told.begin_token != kNoToken;
  if (!told.begin_token.empty() && told.begin_token != kNoToken) config["bos_token"] = told.begin_token;
  if (chose_end) config["eos_token"] = told.end_token;
  return base::json_text(config, 2) + "\n";
}

MarkFile marks_of(const BuildOptions& options) {
  if (!options.leave_out_duplicates) return MarkFile::kNone;
  return options.part.is_whole() ? MarkFile::kWhileGrowing : MarkFile::kKeep;
}

void require_documents(const BuildResult& result, const BuildOptions& options, size_t files) {
  const DocumentCounts& counts = result.encoded.counts;
  if (counts.documents > 0) return;
  const std::string wanted =
      !options.documents.chats
          ? "text"
          : text("a conversation: give JSON Lines with ",
                 options.documents.answers ? options.documents.answers->answer : "messages");
  std::vector<std::string> left_out;
  const auto add = [&](int64_t count, const char* why) {
    if (count > 0) left_out.push_back(text(count, why));
  };
  add(counts.binary_files, " are binary");
  add(counts.empty_documents, " documents are empty");
  add(counts.refused.count, " documents cannot be read: ");
  throw InputError(text("none of ", files, " input files holds ", wanted, left_out.empty() ? "" : "; ",
                        base::join(left_out, ", "), base::join(counts.refused.first, "; ")));
}

void require_whole(const BuildResult& result) {
  const Findings& lost = result.encoded.chats.lost;
  if (lost.count == 0) return;
  for (const std::string& found : lost.first) base::log_warning(found);
  throw InputError(text("something of ", lost.count, " of ", result.encoded.counts.documents,
                        " conversations would be lost; the lines above show the first: choose another ",
                        "--chat-template, or correct the data"));
}

void encode(const std::vector<InputFile>& files, const BuildOptions& options, const BuildTokenizer& with,
            IndexedWriter& writer, const base::Json& saved, BuildResult& result) {
  Encoded encoded;
  if (saved.is_null()) {
    encoded.token_counts.resize(static_cast<size_t>(result.vocabulary));
    encoded.sources.resize(result.inputs.sources.size());
  } else {
    encoded = encoded_from_json(saved, "corpus.unfinished");
    result.continued_documents = static_cast<int64_t>(writer.lengths().size());
  }
  const int64_t all_bytes = total_bytes(files);
  const EncodingOptions encoding{
      .documents = options.documents,
      .part = options.part,
      .leave_out_duplicates = options.leave_out_duplicates,
      .copies = options.directory / "corpus.unfinished" / "inputs",
      .workers = with.workers,
      .save_bytes = options.save_bytes,
      .on_progress = [&](int64_t done) { report(options, "encode", done, all_bytes); }};
  report(options, "encode", 0, all_bytes);
  encode_files(files, encoding, *with.tokenizer, writer, encoded);
  report(options, "encode", all_bytes, all_bytes);
  result.encoded = std::move(encoded);
  require_whole(result);
  if (options.part.is_whole()) require_documents(result, options, files.size());
  result.lengths = LengthDistribution(writer.lengths());
}

// The fingerprint `what` is the same for all parts of a build.
void commit(const BuildOptions& options, const BuildTokenizer& with, const BuildResult& result,
            const std::string& what, IndexedWriter& writer) {
  writer.retire_older();  // so a build killed here leaves no corpus with another's tokenizer
  base::write_file_atomically(result.tokenizer, with.model);
  std::error_code ignored;
  fs::remove_all(options.directory / kMoreTemplates, ignored);
  ChatFiles beside = with.chat;
  for (const char* name : {kChatTemplate, "chat_template.json", "generation_config.json"}) beside[name];
  beside["tokenizer_config.json"] = config_beside(with.config, options.tokenizer);
  for (const auto& [name, bytes] : beside) {
    if (bytes.empty()) {
      fs::remove(options.directory / name, ignored);
    } else {
      base::make_directories((options.directory / name).parent_path());
      base::write_file_atomically(options.directory / name, bytes);
    }
  }
  fs::remove(options.directory / kPartFile, ignored);
  base::write_file_atomically(options.directory / "lengths.json", lengths_text(lengths_json(result)));
  if (!options.part.is_whole()) base::write_json(options.directory / kPartFile, part_json(result, what));
  writer.commit();
}

}  // namespace

BuildResult build_corpus(const BuildOptions& told) {
  SLUICE_ASSERT(told.tokenizer_file.empty() != (told.train_vocabulary == 0), "one tokenizer is chosen");
  BuildOptions options = told;
  options.tokenizer_file = tokenizer_file(told.tokenizer_file);
  options.finding.output = options.directory;
  BuildResult result;
  result.part = options.part;
  result.has_mask = options.documents.chats;
  if (result.has_mask) result.chat_options = options_text(options.tokenizer.chat);
  result.inputs = find_inputs(options.inputs, options.finding);
  for (const InputSource& source : result.inputs.sources) result.source_names.push_back(source.name);
  const std::vector<InputFile>& files = result.inputs.files;
  result.prefix = options.directory / "corpus";
  base::make_directories(options.directory);
  auto unfinished = std::make_shared<Unfinished>(result.prefix, fingerprint_of(files, options));
  try {
    if (trains_for_chats(options)) options = with_chat_tokenizer(files, options, *unfinished);
    const BuildTokenizer with = make_tokenizer(files, options, *unfinished);
    result.tokenizer = options.directory / (with.hugging_face ? "tokenizer.json" : "tokenizer.model");
    result.vocabulary = with.tokenizer->vocabulary();
    result.begin_id = with.tokenizer->begin_id();
    result.end_id = with.tokenizer->end_id();
    IndexedWriter writer(
        result.prefix, {.vocabulary = result.vocabulary,
                        .mask = options.documents.chats ? MaskFile::kWrite : MaskFile::kNone,
                        .labels = options.documents.label_key.empty() ? LabelFile::kNone : LabelFile::kWrite,
                        .marks = marks_of(options),
                        .unfinished = unfinished});
    encode(files, options, with, writer, unfinished->state(), result);
    commit(options, with, result, common_fingerprint_of(result.inputs, options), writer);
  } catch (const base::RunError&) {
    unfinished->keep();
    throw;
  }
  return result;
}

}  // namespace sluice::corpus
