#include "corpus/merge.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/beside.h"
#include "corpus/build_result.h"
#include "corpus/indexed.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace fs = std::filesystem;

namespace {

// A corpus to merge, and the part of a build that it is, if any.
struct Piece {
  IndexedCorpus corpus;
  std::optional<PartFile> part;
  std::optional<base::MappedFile> marks;

  DocumentMark mark(int64_t document) const {
    DocumentMark mark;
    if (marks) std::memcpy(&mark, marks->data() + static_cast<size_t>(document) * sizeof mark, sizeof mark);
    return mark;
  }
};

// The tokenizer's files beside a corpus, by name.
std::map<std::string, std::string> tokenizer_files_beside(const fs::path& prefix) {
  std::map<std::string, std::string> files;
  for (const std::string& name : tokenizer_files()) {
    const fs::path path = prefix.parent_path() / name;
    if (fs::exists(path)) files[name] = base::read_file(path);
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(prefix.parent_path() / kMoreTemplates, ignored))
    files[text(kMoreTemplates, "/", entry.path().filename().string())] = base::read_file(entry.path());
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

// Puts the parts of one build in order. InputError unless each part occurs exactly once.
void require_all_parts(std::vector<Piece>& pieces) {
  std::ranges::sort(pieces, {},
                    [](const Piece& piece) { return piece.part ? piece.part->result.part.index : -1; });
  const auto name = [](const Piece& piece) { return piece.corpus.prefix().string(); };
  const Piece& last = pieces.back();
  const int64_t count = last.part->result.part.count;
  std::vector<bool> there(static_cast<size_t>(std::max<int64_t>(count, 1)));
  for (const Piece& piece : pieces) {
    if (!piece.part)
      throw InputError(text(name(piece), " is no part of a build, but ", name(last), " is: merge one kind"));
    const BuildPart part = piece.part->result.part;
    if (part.count != count || piece.part->what != last.part->what) {
      throw InputError(text(name(piece), " (part ", part.text(), ") and ", name(last), " (part ",
                            last.part->result.part.text(),
                            ") are not of one build: their inputs, options or tokenizers differ"));
    }
    if (part.index < 0 || part.index >= count || there[static_cast<size_t>(part.index)])
      throw InputError(
          text("part ", part.text(), " is there twice, also as ", name(piece), ": name it once"));
    there[static_cast<size_t>(part.index)] = true;
  }
  std::vector<std::string> missing;
  for (int64_t index = 0; index < count; ++index)
    if (!there[static_cast<size_t>(index)]) missing.push_back(BuildPart{index, count}.text());
  if (missing.empty()) return;
  throw InputError(text("of ", count, " parts ", missing.size() == 1 ? "one is" : "some are", " missing: ",
                        base::join(missing, ", "), ": build each with --part, and name its corpus"));
}

std::vector<Piece> open_pieces(const MergeOptions& options) {
  std::vector<Piece> pieces;
  for (const fs::path& path : options.corpora) {
    Piece& piece = pieces.emplace_back(Piece{IndexedCorpus(path), {}, {}});
    const fs::path& prefix = piece.corpus.prefix();
    piece.part = read_part_file(prefix);
    if (piece.part && piece.part->leaves_out_duplicates) {
      piece.marks.emplace(with_suffix(prefix, ".marks"));
      if (piece.marks->size() != sizeof(DocumentMark) * static_cast<size_t>(piece.corpus.documents()))
        throw InputError(text(prefix.string(), ".marks does not belong to it: build the part again"));
    }
  }
  if (std::ranges::any_of(pieces, [](const Piece& piece) { return piece.part.has_value(); }))
    require_all_parts(pieces);
  return pieces;
}

void write_companions(const std::vector<Piece>& pieces, const MergeOptions& options,
                      const std::vector<int64_t>& counts, const MergeResult& result) {
  std::map<std::string, std::string> tokenizer;
  base::Json described;  // token figures from a lengths.json beside an input
  for (const Piece& piece : pieces) {
    if (tokenizer.empty()) tokenizer = tokenizer_files_beside(piece.corpus.prefix());
    const fs::path lengths = piece.corpus.prefix().parent_path() / "lengths.json";
    if (described.is_null() && fs::exists(lengths)) described = base::read_json(lengths);
  }
  for (const auto& [name, bytes] : tokenizer) {
    base::make_directories((options.directory / name).parent_path());
    base::write_file_atomically(options.directory / name, bytes);
  }
  base::Json json = result.build ? lengths_json(*result.build) : to_json(result.lengths);
  if (!result.build) {
    for (const char* key : {"vocabulary", "begin_id", "end_id", "tokenizer"}) {
      if (described.contains(key)) json[key] = described[key];
    }
    json["unigram_entropy_nats"] = unigram_entropy_nats(counts);
  }
  std::error_code ignored;
  fs::remove(options.directory / kPartFile, ignored);
  base::write_file_atomically(options.directory / "lengths.json", lengths_text(json));
}

// Copies documents, and counts them if the corpora are parts of a build.
class Copier {
 public:
  Copier(const std::vector<Piece>& pieces, const MergeOptions& options, IndexedWriter& writer, bool masked)
      : pieces_(pieces), options_(options), writer_(writer), masked_(masked) {
    for (const Piece& piece : pieces) all_tokens_ += piece.corpus.tokens();
  }

  void copy_all() {
    for (const Piece& piece : pieces_) {
      if (piece.part) add_counts(piece.part->result.encoded, encoded_);
      for (int64_t document = 0; document < piece.corpus.documents(); ++document) copy(piece, document);
    }
  }

  const std::vector<int64_t>& token_counts() const { return counts_; }
  // Sum over all parts, without duplicates across parts.
  const Encoded& encoded() const { return encoded_; }

 private:
  void copy(const Piece& piece, int64_t document) {
    const std::vector<int32_t> tokens = piece.corpus.read(document);
    if (masked_) {
      mask_.resize(tokens.size());
      piece.corpus.read_mask(document, 0, piece.corpus.length(document), mask_.data());
    }
    if (piece.marks && !seen_.insert(piece.mark(document).hash).second)
      return uncount_duplicate(piece.mark(document), tokens, mask_, encoded_);
    for (const int32_t token : tokens) {
      if (static_cast<size_t>(token) >= counts_.size()) counts_.resize(static_cast<size_t>(token) + 1);
      ++counts_[static_cast<size_t>(token)];
    }
    writer_.add(tokens, mask_, {},
                piece.corpus.labels() == nullptr ? "" : base::json_text(piece.corpus.labels()->of(document)));
    if (options_.on_progress) options_.on_progress(writer_.tokens(), all_tokens_);
  }

  const std::vector<Piece>& pieces_;
  const MergeOptions& options_;
  IndexedWriter& writer_;
  const bool masked_;
  int64_t all_tokens_ = 0;
  std::vector<uint8_t> mask_;
  std::vector<int64_t> counts_;
  DocumentHashes seen_;
  Encoded encoded_;
};

}  // namespace

MergeResult merge_corpora(const MergeOptions& options) {
  if (options.corpora.empty()) throw InputError("no corpus is given: name the prefixes of two or more");
  MergeResult result;
  result.prefix = options.directory / "corpus";
  const std::vector<Piece> pieces = open_pieces(options);
  const bool labelled = pieces.front().corpus.labels() != nullptr;
  for (const Piece& piece : pieces) {
    const IndexedCorpus& corpus = piece.corpus;
    require_alike(pieces.front().corpus, corpus);
    result.masked = result.masked || corpus.has_mask();
    if ((corpus.labels() != nullptr) != labelled) {
      throw InputError(text(corpus.prefix().string(), labelled ? " has no labels" : " has labels", ", ",
                            pieces.front().corpus.prefix().string(), labelled ? " has" : " has none",
                            ": merge corpora that are built alike"));
    }
    std::error_code ignored;
    if (fs::equivalent(with_suffix(corpus.prefix(), ".bin"), with_suffix(result.prefix, ".bin"), ignored)) {
      throw InputError(text(result.prefix.string(), " is to be read and written: choose another --out"));
    }
  }
  base::make_directories(options.directory);
  constexpr int64_t kFewIds = 65'499;  // uint16, as in the inputs
  const bool few = pieces.front().corpus.token_type() == TokenType::kUint16;
  IndexedWriter writer(result.prefix, {.vocabulary = few ? kFewIds : 0,
                                       .mask = result.masked ? MaskFile::kWrite : MaskFile::kNone,
                                       .labels = labelled ? LabelFile::kWrite : LabelFile::kNone});
  Copier copier(pieces, options, writer, result.masked);
  copier.copy_all();
  result.lengths = LengthDistribution(writer.lengths());
  if (pieces.front().part) {
    result.build = pieces.front().part->result;
    result.build->part = {};
    result.build->encoded = copier.encoded();
    result.build->lengths = result.lengths;
  }
  writer.retire_older();
  write_companions(pieces, options, copier.token_counts(), result);
  writer.commit();
  return result;
}

}  // namespace sluice::corpus
