// Token files in Megatron-LM's indexed format: PREFIX.bin holds the tokens of all sequences one after the
// other; PREFIX.idx holds "MMIDIDX\0\0", uint64 version 1, uint8 type code, uint64 sequence count, uint64
// document count, int32 length of each sequence, int64 byte offset of each sequence in .bin, and the int64
// document index (the sequence that begins each document, and the sequence count at the end), all
// little-endian. A document may have several sequences, which are read as one; without a document index each
// sequence is one. Beside them may lie PREFIX.mask, one byte a token in .bin's order: 0 where the loss
// ignores the token as a target.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_fwd.h"
#include "corpus/corpus_bytes.h"
#include "corpus/labels.h"
#include "corpus/unfinished.h"

namespace sluice::corpus {

// The codes that .idx uses.
enum class TokenType : uint8_t { kInt32 = 4, kUint16 = 8 };

int64_t token_bytes(TokenType type);

// uint16 for 1 to 65,499 ids, else int32.
TokenType token_type_for(int64_t vocabulary);

// PREFIX.idx, PREFIX.bin, PREFIX.mask. A prefix given with .idx or .bin at its end, and the folder of a
// build, mean the same corpus.
std::filesystem::path corpus_prefix(const std::filesystem::path& path);
std::filesystem::path with_suffix(const std::filesystem::path& prefix, const std::string& suffix);

struct IndexedOptions {
  int64_t vocabulary = 0;  // read() refuses tokens at or above it; 0: only negative ones
  storage::Locate locate;  // of corpora in buckets; empty: there are none
  // Where the indexes of such corpora are kept, by name and version.
  std::filesystem::path cache;
};

// A corpus' file on this machine or in a bucket. InputError for a bucket where there is no `locate`.
storage::Location place_of(const std::filesystem::path& path, const IndexedOptions& options);

// Tokens of one document.
struct TokenRange {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// A corpus opened for reading: maps the files, keeps all lengths in memory, reads tokens only when asked. Of
// a corpus in a bucket the index is copied to this machine, and tokens are asked for by ranges. Thread-safe.
class IndexedCorpus {
 public:
  // InputError naming path, value and way out: a missing or truncated file, wrong magic, version or type,
  // negative lengths, sequences outside .bin, a document whose sequences do not follow each other there, a
  // mask of another size. Of a bucket's objects also RunError when it cannot be reached; then, and where an
  // object has been replaced, later functions throw as CorpusBytes::read.
  explicit IndexedCorpus(const std::filesystem::path& prefix, IndexedOptions options = {});

  const std::filesystem::path& prefix() const { return prefix_; }
  const IndexedOptions& options() const { return options_; }
  TokenType token_type() const { return type_; }
  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return tokens_; }
  int64_t length(int64_t document) const { return lengths_[static_cast<size_t>(document)]; }
  std::span<const int32_t> lengths() const { return lengths_; }

  // Writes tokens [begin, begin + count) of the document to `out`. InputError when a token is not below
  // the vocabulary. REQUIRES: the range lies in the document.
  void read(int64_t document, int64_t begin, int64_t count, int32_t* out) const;
  std::vector<int32_t> read(int64_t document) const;

  // Fetches ranges of a corpus in a bucket, several at once, so that reading them, with the token behind
  // each, waits for nobody; they are kept until the next call. Nothing of a corpus on this machine.
  void fetch_ahead(std::span<const TokenRange> ranges) const;

  // The same range of the mask. Ones when the corpus has none.
  bool has_mask() const { return mask_.has_value(); }
  void read_mask(int64_t document, int64_t begin, int64_t count, uint8_t* out) const;

  // What its documents are labelled with; null: nothing.
  const Labels* labels() const { return labels_.get(); }

  // Reads everything. InputError naming document, position and value of the first token that is not in
  // [0, vocabulary).
  void check_tokens(int64_t vocabulary) const;

  // Whether the loss counts any token: false when there is a mask and all of it is 0. Reads the mask up to
  // the first token that counts.
  bool has_targets() const;
  // Parts per million of the tokens that the loss counts: of all without a mask; else as the mask's blocks of
  // content_hash() have it, at least 1.
  int64_t loss_ppm() const;

  // Of all documents' lengths and places: equal for equal .idx files.
  uint64_t index_hash() const;
  // Of kContentBlocks blocks of kContentBlockBytes of .bin, spread evenly over the file, and as many of
  // .mask; of the whole file where it is not larger. So its cost has a bound at any size. What it proves: a
  // corpus of other text, order or tokenizer has another hash; a few tokens changed in a large file may not
  // show.
  static constexpr int64_t kContentBlocks = 256;
  static constexpr int64_t kContentBlockBytes = 16 << 10;
  uint64_t content_hash() const;

  // Bytes of .bin and .mask handed out so far.
  int64_t read_bytes() const { return read_bytes_->load(std::memory_order_relaxed); }

 private:
  void read_index(const base::MappedFile& index);
  // From sequences to documents, given where these begin.
  void join_sequences(const std::vector<int64_t>& boundaries);
  int64_t count_tokens() const;  // and checks that every sequence lies in .bin
  void copy_tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const;
  void check_range(std::span<const int32_t> tokens, int64_t vocabulary, int64_t document,
                   int64_t begin) const;
  int64_t byte_offset(int64_t document, int64_t begin) const;

  std::filesystem::path prefix_;
  IndexedOptions options_;
  TokenType type_ = TokenType::kUint16;
  int64_t tokens_ = 0;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> offsets_bytes_;
  CorpusBytes tokens_file_;
  std::optional<CorpusBytes> mask_;
  std::unique_ptr<const Labels> labels_;
  std::unique_ptr<std::atomic<int64_t>> read_bytes_ = std::make_unique<std::atomic<int64_t>>(0);
};

enum class MaskFile { kNone, kWrite };
enum class LabelFile { kNone, kWrite };

// What is known of a document beside its tokens: so that duplicates are found, and counted, later.
struct DocumentMark {
  base::WideHash hash;
  uint32_t bytes = 0;
  uint32_t source = 0;  // of which input it is, shifted; then the flag
  static constexpr uint32_t kChanged = 1, kSourceShift = 1;
};

// PREFIX.marks holds one a document. kWhileGrowing: only until the corpus is whole.
enum class MarkFile { kNone, kWhileGrowing, kKeep };

struct IndexedWriterOptions {
  int64_t vocabulary = 0;  // decides the token type; add() refuses ids at or above it; 0: int32, any id
  MaskFile mask = MaskFile::kNone;
  LabelFile labels = LabelFile::kNone;
  MarkFile marks = MarkFile::kNone;
  // Where the files grow, with what an earlier writer saved there; none: in a folder of the writer's own.
  std::shared_ptr<Unfinished> unfinished;
};

// Writes a corpus as a stream. An older corpus of that prefix disappears at commit(), whose last act makes
// .idx appear: a crash leaves a corpus that cannot be opened or a whole one, never a mixed one.
class IndexedWriter {
 public:
  // InputError when another process writes a corpus of that prefix.
  explicit IndexedWriter(const std::filesystem::path& prefix, IndexedWriterOptions options = {});

  // Appends one document. `mask` holds a byte a token with MaskFile::kWrite, nothing otherwise; `mark` counts
  // unless MarkFile::kNone; `label`, JSON without line ends, with LabelFile::kWrite alone. REQUIRES: every
  // token is in [0, vocabulary).
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> mask = {}, const DocumentMark& mark = {},
           std::string_view label = {});

  // Of the documents that an earlier writer had saved, where marks are written.
  std::vector<DocumentMark> saved_marks() const;

  // After this a writer that continues from options.unfinished has all that was added, and
  // Unfinished::state() has these fields. RunError when the disk is full.
  void save(base::Json fields);

  // Makes an older corpus of that prefix impossible to open, as commit() does first: before what goes with it
  // changes.
  void retire_older();

  // RunError when the disk is full. REQUIRES: called at most once, nothing added afterwards.
  void commit();

  std::span<const int32_t> lengths() const { return lengths_; }
  int64_t tokens() const { return tokens_; }

 private:
  void continue_saved();
  void flush_tokens();
  std::string index_bytes() const;

  std::filesystem::path prefix_;
  IndexedWriterOptions options_;
  TokenType type_;
  std::optional<GrowingFile> tokens_file_;
  std::optional<GrowingFile> lengths_file_;  // for save() alone
  std::optional<GrowingFile> mask_file_;
  std::optional<GrowingFile> marks_file_;
  std::optional<GrowingFile> labels_file_;
  std::string token_buffer_;
  std::string mask_buffer_;
  std::string mark_buffer_;
  std::string label_buffer_;
  std::vector<int32_t> lengths_;
  size_t saved_lengths_ = 0;
  int64_t tokens_ = 0;
  int64_t label_bytes_ = 0;
};

}  // namespace sluice::corpus
