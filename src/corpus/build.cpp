#include "corpus/build.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "corpus/indexed.h"
#include "corpus/sentencepiece_tokenizer.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace {

// Documents that are tokenized together: enough to keep all threads busy.
constexpr size_t kBatchDocuments = 4096;
constexpr size_t kBatchBytes = size_t{4} << 20;
constexpr uint64_t kSampleSeed = 0x73616D706C65;

int64_t total_bytes(const std::vector<InputFile>& files) {
  int64_t bytes = 0;
  for (const InputFile& file : files) bytes += file.size_bytes;
  return bytes;
}

void report(const BuildOptions& options, std::string_view stage, int64_t done_bytes, int64_t all_bytes) {
  if (options.on_progress) options.on_progress(stage, done_bytes, all_bytes);
}

// A model trained on whole documents drawn evenly from all inputs.
std::string train_model(const std::vector<InputFile>& files, const BuildOptions& options) {
  SentencePieceTrainer trainer(options.sample_bytes);
  const auto all_bytes = static_cast<uint64_t>(std::max<int64_t>(total_bytes(files), 1));
  const auto sample_bytes = static_cast<uint64_t>(options.sample_bytes);
  DocumentCounts counts;
  uint64_t document = 0;
  int64_t done_bytes = 0;
  for (const InputFile& file : files) {
    if (trainer.full()) break;
    for_each_document(file, options.documents, counts, [&](std::string_view whole) {
      base::Rng draw(kSampleSeed, document++);
      if (draw.below(all_bytes) < sample_bytes) trainer.add(whole);
    });
    done_bytes += file.size_bytes;
    report(options, "read sample", done_bytes, static_cast<int64_t>(all_bytes));
  }
  report(options, "train tokenizer", 0, trainer.taken_bytes());
  std::string model = trainer.train(options.train_vocabulary);
  report(options, "train tokenizer", trainer.taken_bytes(), trainer.taken_bytes());
  return model;
}

// Tokenizes documents in batches and hands them to the writer in order.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, IndexedWriter& writer, BuildResult& result)
      : tokenizer_(tokenizer), writer_(writer), result_(result) {
    counts_.resize(static_cast<size_t>(tokenizer.vocabulary()));
  }

  void add(std::string_view document) {
    batch_.emplace_back(document);
    batch_bytes_ += document.size();
    if (batch_.size() >= kBatchDocuments || batch_bytes_ >= kBatchBytes) flush();
  }

  void flush() {
    std::vector<std::vector<int32_t>> ids = tokenizer_.encode_all(batch_);
    const std::vector<std::string> decoded = tokenizer_.decode_all(ids);
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (decoded[i] != batch_[i]) ++result_.changed_documents;
      ids[i].push_back(tokenizer_.end_id());
      for (const int32_t id : ids[i]) ++counts_[static_cast<size_t>(id)];
      writer_.add(ids[i]);
    }
    batch_.clear();
    batch_bytes_ = 0;
  }

  // How often each token was written.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  const Tokenizer& tokenizer_;
  IndexedWriter& writer_;
  BuildResult& result_;
  std::vector<std::string> batch_;
  size_t batch_bytes_ = 0;
  std::vector<int64_t> counts_;
};

void encode_files(const std::vector<InputFile>& files, const BuildOptions& options,
                  const Tokenizer& tokenizer, IndexedWriter& writer, BuildResult& result) {
  Encoder encoder(tokenizer, writer, result);
  const int64_t all_bytes = total_bytes(files);
  int64_t done_bytes = 0;
  for (const InputFile& file : files) {
    report(options, "encode", done_bytes, all_bytes);
    for_each_document(file, options.documents, result.counts,
                      [&](std::string_view document) { encoder.add(document); });
    done_bytes += file.size_bytes;
  }
  encoder.flush();
  report(options, "encode", all_bytes, all_bytes);
  if (result.counts.documents == 0) {
    throw InputError(text("none of ", files.size(), " input files holds text: ", result.counts.binary_files,
                          " are binary, ", result.counts.refused_documents, " documents are not UTF-8, ",
                          result.counts.empty_documents, " are empty; convert them to UTF-8"));
  }
  result.unigram_entropy_nats = unigram_entropy_nats(encoder.counts());
  result.lengths = LengthDistribution(writer.lengths());
}

base::Json lengths_json(const BuildResult& result) {
  base::Json json = to_json(result.lengths);
  json["vocabulary"] = result.vocabulary;
  json["end_id"] = result.end_id;
  json["tokenizer"] = result.tokenizer.filename().string();
  json["unigram_entropy_nats"] = result.unigram_entropy_nats;
  json["bytes"] = result.counts.bytes;
  return json;
}

}  // namespace

BuildResult build_corpus(const BuildOptions& options) {
  SLUICE_ASSERT(options.tokenizer_file.empty() != (options.train_vocabulary == 0), "one tokenizer is chosen");
  const Inputs inputs = find_inputs(options.inputs, options.documents);
  const std::vector<InputFile>& files = inputs.files;
  const bool trained = options.tokenizer_file.empty();
  const bool hugging_face = options.tokenizer_file.extension() == ".json";
  const std::string model = trained ? train_model(files, options) : base::read_file(options.tokenizer_file);
  std::unique_ptr<Tokenizer> tokenizer;
  if (trained) {
    tokenizer = std::make_unique<SentencePieceTokenizer>(model, "the trained tokenizer", options.tokenizer);
  } else {
    tokenizer = load_tokenizer(options.tokenizer_file, options.tokenizer);
  }

  BuildResult result;
  result.other_endings = inputs.other_endings;
  result.prefix = options.directory / "corpus";
  result.tokenizer = options.directory / (hugging_face ? "tokenizer.json" : "tokenizer.model");
  result.vocabulary = tokenizer->vocabulary();
  result.end_id = tokenizer->end_id();
  base::make_directories(options.directory);
  IndexedWriter writer(result.prefix, {.vocabulary = result.vocabulary});
  encode_files(files, options, *tokenizer, writer, result);
  writer.retire_older();  // whoever is killed here leaves no corpus with another one's tokenizer
  base::write_file_atomically(result.tokenizer, model);
  base::write_file_atomically(options.directory / "lengths.json", lengths_text(lengths_json(result)));
  writer.commit();
  return result;
}

}  // namespace sluice::corpus
