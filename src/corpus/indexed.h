// Token files in Megatron-LM's indexed format. PREFIX.bin holds the tokens of all sequences one after the
// other. PREFIX.idx is little-endian: "MMIDIDX\0\0", uint64 version 1, uint8 type code, uint64 sequence
// count, uint64 document count, int32 length of each sequence, int64 byte offset of each sequence in .bin.
// The int64 document index follows: the sequence that begins each document, and the sequence count at the
// end. A document may have several sequences, which are read as one; without a document index each sequence
// is a document. An optional PREFIX.mask has one byte per token, in .bin's order: 0 means that the loss
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

// Type codes in .idx.
enum class TokenType : uint8_t { kInt32 = 4, kUint16 = 8 };

int64_t token_bytes(TokenType type);

// kUint16 for 1 to 65,499 ids, else kInt32.
TokenType token_type_for(int64_t vocabulary);

// Returns the prefix of PREFIX.idx, PREFIX.bin and PREFIX.mask. `path` may be the prefix, end in .idx or
// .bin, or be the folder of a build.
std::filesystem::path corpus_prefix(const std::filesystem::path& path);
std::filesystem::path with_suffix(const std::filesystem::path& prefix, const std::string& suffix);

struct IndexedOptions {
  int64_t vocabulary = 0;  // read() refuses tokens at or above it; 0: only negative ones
  storage::Locate locate;  // opens places of corpora in buckets; empty: there are none
  // Local folder for the indexes of such corpora, by name and version.
  std::filesystem::path cache;
};

// The location of a corpus' file. InputError for a file in a bucket if there is no `locate`.
storage::Location place_of(const std::filesystem::path& path, const IndexedOptions& options);

// Tokens of one document.
struct TokenRange {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// A corpus opened for reading: maps the files, keeps all lengths in memory, reads tokens only when asked. For
// a corpus in a bucket, the index is copied to this machine and tokens are fetched by ranges. Thread-safe.
class IndexedCorpus {
 public:
  // InputError naming path, value and way out: a missing or truncated file; wrong magic, version or type.
  // Also for negative lengths, sequences outside .bin, a document with sequences not adjacent in .bin, a mask
  // of the wrong size. RunError if a bucket cannot be reached. Later functions throw as CorpusBytes::read if
  // the bucket cannot be reached then, or if an object has been replaced.
  explicit IndexedCorpus(const std::filesystem::path& prefix, IndexedOptions options = {});

  const std::filesystem::path& prefix() const { return prefix_; }
  const IndexedOptions& options() const { return options_; }
  TokenType token_type() const { return type_; }
  int64_t documents() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t tokens() const { return tokens_; }
  int64_t length(int64_t document) const { return lengths_[static_cast<size_t>(document)]; }
  std::span<const int32_t> lengths() const { return lengths_; }

  // Writes tokens [begin, begin + count) of the document to `out`. InputError if a token is not below the
  // vocabulary. REQUIRES: the range lies in the document.
  void read(int64_t document, int64_t begin, int64_t count, int32_t* out) const;
  std::vector<int32_t> read(int64_t document) const;

  // Fetches ranges of a corpus in a bucket, several at once, and keeps them until the next call: reading
  // them, with the token behind each range, then needs no request. No effect for a corpus on this machine.
  void fetch_ahead(std::span<const TokenRange> ranges) const;

  // Reads the same range of the mask: all ones if the corpus has no mask.
  bool has_mask() const { return mask_.has_value(); }
  void read_mask(int64_t document, int64_t begin, int64_t count, uint8_t* out) const;

  // The documents' labels; null: none.
  const Labels* labels() const { return labels_.get(); }

  // Reads the whole corpus. InputError naming document, position and value of the first token that is not in
  // [0, vocabulary).
  void check_tokens(int64_t vocabulary) const;

  // Whether the loss counts any token: false when there is a mask and all of it is 0. Reads the mask up to
  // the first token that counts.
  bool has_targets() const;
  // The share of tokens that the loss counts, in parts per million: all without a mask. Else the share in the
  // mask's blocks that content_hash() reads, an estimate for larger corpora; at least 1.
  int64_t loss_ppm() const;

  // Hash of all documents' lengths and offsets: equal for equal .idx files.
  uint64_t index_hash() const;
  // Hash of kContentBlocks blocks of kContentBlockBytes of .bin, spread evenly over the file, and as many of
  // .mask; of a smaller file as a whole. So the cost is bounded at any size. A corpus of other text, order or
  // tokenizer has another hash; a change of a few tokens in a large file may go unnoticed, because only the
  // blocks are hashed.
  static constexpr int64_t kContentBlocks = 256;
  static constexpr int64_t kContentBlockBytes = 16 << 10;
  uint64_t content_hash() const;

  // Bytes of .bin and .mask handed out so far.
  int64_t read_bytes() const { return read_bytes_->load(std::memory_order_relaxed); }

 private:
  void read_index(const base::MappedFile& index);
  // Joins sequences into documents, given the sequences at which documents begin.
  void join_sequences(const std::vector<int64_t>& boundaries);
  int64_t count_tokens() const;  // also checks that every sequence lies in .bin
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

// A document's properties beside its tokens, by which duplicates are found and counted later.
struct DocumentMark {
  base::WideHash hash;
  uint32_t bytes = 0;
  uint32_t source = 0;  // number of its input, shifted; the lowest bit is the flag
  static constexpr uint32_t kChanged = 1, kSourceShift = 1;
};

// PREFIX.marks holds one mark per document. kWhileGrowing: only until the corpus is whole.
enum class MarkFile { kNone, kWhileGrowing, kKeep };

struct IndexedWriterOptions {
  int64_t vocabulary = 0;  // decides the token type; add() refuses ids at or above it; 0: int32, any id
  MaskFile mask = MaskFile::kNone;
  LabelFile labels = LabelFile::kNone;
  MarkFile marks = MarkFile::kNone;
  // Folder where the files grow, with the state that an earlier writer saved; null: the writer makes its own.
  std::shared_ptr<Unfinished> unfinished;
};

// Writes a corpus as a stream. An older corpus of that prefix is removed by commit(), which makes .idx appear
// last: after a crash there is a whole corpus or one that cannot be opened, never a mixture.
class IndexedWriter {
 public:
  // InputError if another process writes a corpus of that prefix.
  explicit IndexedWriter(const std::filesystem::path& prefix, IndexedWriterOptions options = {});

  // Appends one document. `mask` holds one byte per token with MaskFile::kWrite and is empty otherwise.
  // `mark` is ignored with MarkFile::kNone. `label` is JSON without line ends, with LabelFile::kWrite alone.
  // REQUIRES: every token is in [0, vocabulary).
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> mask = {}, const DocumentMark& mark = {},
           std::string_view label = {});

  // Marks of the documents that an earlier writer had saved, if marks are written.
  std::vector<DocumentMark> saved_marks() const;

  // Saves a state: a writer that continues from options.unfinished then has all documents added so far, and
  // Unfinished::state() has these fields. RunError if the disk is full.
  void save(base::Json fields);

  // Makes an older corpus of that prefix impossible to open, as commit() does first. Call it before changing
  // files that belong to the older corpus.
  void retire_older();

  // Makes the corpus appear. RunError if the disk is full. REQUIRES: the last call on this writer.
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
  std::optional<GrowingFile> lengths_file_;  // used by save() alone
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
