#include "corpus/merge.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/indexed.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"};

// The tokenizer's files beside a corpus, by name.
std::map<std::string, std::string> tokenizer_files_beside(const fs::path& prefix) {
  std::map<std::string, std::string> files;
  for (const char* name : kTokenizerFiles) {
    const fs::path path = prefix.parent_path() / name;
    if (fs::exists(path)) files[name] = base::read_file(path);
  }
  return files;
}

void require_alike(const IndexedCorpus& first, const IndexedCorpus& other) {
  if (first.token_type() != other.token_type()) {
    throw InputError(
        text(first.prefix().string(), " and ", other.prefix().string(),
             " hold tokens of different types, so their tokenizers differ: build them with one"));
  }
  const auto of_first = tokenizer_files_beside(first.prefix());
  const auto of_other = tokenizer_files_beside(other.prefix());
  if (!of_first.empty() && !of_other.empty() && of_first != of_other) {
    throw InputError(text("the tokenizers beside ", first.prefix().string(), " and ", other.prefix().string(),
                          " differ: build both corpora with one"));
  }
}

void write_companions(const std::vector<IndexedCorpus>& corpora, const MergeOptions& options,
                      const std::vector<int64_t>& counts, const MergeResult& result) {
  std::map<std::string, std::string> tokenizer;
  base::Json described;  // what a lengths.json beside an input says of tokens
  for (const IndexedCorpus& corpus : corpora) {
    if (tokenizer.empty()) tokenizer = tokenizer_files_beside(corpus.prefix());
    const fs::path lengths = corpus.prefix().parent_path() / "lengths.json";
    if (described.is_null() && fs::exists(lengths)) described = base::read_json(lengths);
  }
  for (const auto& [name, bytes] : tokenizer) base::write_file_atomically(options.directory / name, bytes);
  base::Json json = to_json(result.lengths);
  for (const char* key : {"vocabulary", "begin_id", "end_id", "tokenizer"}) {
    if (described.contains(key)) json[key] = described[key];
  }
  json["unigram_entropy_nats"] = unigram_entropy_nats(counts);
  base::write_file_atomically(options.directory / "lengths.json", lengths_text(json));
}

// Counts each token id on the way.
void copy_documents(const std::vector<IndexedCorpus>& corpora, const MergeOptions& options,
                    IndexedWriter& writer, bool masked, std::vector<int64_t>& counts) {
  int64_t all_tokens = 0;
  for (const IndexedCorpus& corpus : corpora) all_tokens += corpus.tokens();
  std::vector<uint8_t> mask;
  for (const IndexedCorpus& corpus : corpora) {
    for (int64_t document = 0; document < corpus.documents(); ++document) {
      const std::vector<int32_t> tokens = corpus.read(document);
      for (const int32_t token : tokens) {
        if (static_cast<size_t>(token) >= counts.size()) counts.resize(static_cast<size_t>(token) + 1);
        ++counts[static_cast<size_t>(token)];
      }
      if (masked) {
        mask.resize(tokens.size());
        corpus.read_mask(document, 0, corpus.length(document), mask.data());
      }
      writer.add(tokens, mask);
      if (options.on_progress) options.on_progress(writer.tokens(), all_tokens);
    }
  }
}

}  // namespace

MergeResult merge_corpora(const MergeOptions& options) {
  if (options.corpora.empty()) throw InputError("no corpus is given: name the prefixes of two or more");
  MergeResult result;
  result.prefix = options.directory / "corpus";
  std::vector<IndexedCorpus> corpora;
  for (const fs::path& prefix : options.corpora) {
    corpora.emplace_back(prefix);
    const IndexedCorpus& corpus = corpora.back();
    require_alike(corpora.front(), corpus);
    result.masked = result.masked || corpus.has_mask();
    std::error_code ignored;
    if (fs::equivalent(with_suffix(corpus.prefix(), ".bin"), with_suffix(result.prefix, ".bin"), ignored)) {
      throw InputError(text(result.prefix.string(), " is to be read and written: choose another --out"));
    }
  }
  base::make_directories(options.directory);
  constexpr int64_t kFewIds = 65'499;  // uint16, as the inputs
  const bool few = corpora.front().token_type() == TokenType::kUint16;
  IndexedWriter writer(result.prefix, {.vocabulary = few ? kFewIds : 0,
                                       .mask = result.masked ? MaskFile::kWrite : MaskFile::kNone});
  std::vector<int64_t> counts;
  copy_documents(corpora, options, writer, result.masked, counts);
  result.lengths = LengthDistribution(writer.lengths());
  writer.retire_older();
  write_companions(corpora, options, counts, result);
  writer.commit();
  return result;
}

}  // namespace sluice::corpus
