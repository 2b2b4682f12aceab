#include "corpus/indexed.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "corpus/remote_copy.h"

namespace sluice::corpus {

using base::InputError;
using base::text;

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are we");

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;
constexpr int64_t kUint16Vocabulary = 65'500;
constexpr size_t kMaskBytes = size_t{1} << 20;
constexpr const char* kRebuild = ": copy the corpus again or rebuild it with `sluice corpus build`";

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

struct Header {
  TokenType type;
  uint64_t sequences;
  uint64_t documents;  // entries of the document index
};

Header read_header(const base::MappedFile& index, const std::string& path) {
  if (index.size() < kHeaderBytes) {
    throw InputError(
        text(path, " has ", index.size(), " bytes, fewer than its header's ", kHeaderBytes, kRebuild));
  }
  const std::byte* next = index.data();
  if (std::memcmp(next, kMagic.data(), kMagic.size()) != 0) {
    throw InputError(text(path, " does not begin with MMIDIDX: it is not the index of a Megatron corpus; ",
                          "make one with `sluice corpus build`"));
  }
  const auto version = load<uint64_t>(next + 9);
  if (version != kVersion) throw InputError(text(path, " has version ", version, ", not 1", kRebuild));
  const int code = load<uint8_t>(next + 17);
  if (code != static_cast<int>(TokenType::kInt32) && code != static_cast<int>(TokenType::kUint16)) {
    throw InputError(text(path, " has token type code ", code, ": only 8 (uint16) and 4 (int32) are read; ",
                          "rebuild it with one of these"));
  }
  return {static_cast<TokenType>(code), load<uint64_t>(next + 18), load<uint64_t>(next + 26)};
}

// The number of bytes that `header` implies. InputError unless the file has as many, or one more per
// sequence, which multimodal writers append.
void check_size(const base::MappedFile& index, const Header& header, const std::string& path) {
  const auto wanted = static_cast<unsigned __int128>(header.sequences) * 12 +
                      static_cast<unsigned __int128>(header.documents) * 8 + kHeaderBytes;
  if (index.size() == wanted || index.size() == wanted + header.sequences) return;
  throw InputError(text(path, " has ", index.size(), " bytes, but its header promises ", header.sequences,
                        " sequences and ", header.documents, " document entries",
                        index.size() < wanted ? " (it is truncated)" : " (it is too long)", kRebuild));
}

}  // namespace

int64_t token_bytes(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }

TokenType token_type_for(int64_t vocabulary) {
  return vocabulary > 0 && vocabulary < kUint16Vocabulary ? TokenType::kUint16 : TokenType::kInt32;
}

std::filesystem::path corpus_prefix(const std::filesystem::path& path) {
  const std::string suffix = path.extension().string();
  if (suffix == ".idx" || suffix == ".bin") return path.parent_path() / path.stem();
  // The folder that a build has made.
  std::error_code ignored;
  const bool is_build = std::filesystem::exists(path / "corpus.idx", ignored);
  return is_build && !std::filesystem::exists(path.string() + ".idx", ignored) ? path / "corpus" : path;
}

std::filesystem::path with_suffix(const std::filesystem::path& prefix, const std::string& suffix) {
  return prefix.string() + suffix;
}

storage::Location place_of(const std::filesystem::path& path, const IndexedOptions& options) {
  const std::string name = path.string();
  if (!storage::is_s3(name)) return path;
  if (!options.locate)
    throw InputError(
        text(name, " lies in a bucket, which is not read here: copy the corpus to this machine"));
  return options.locate(name);
}

namespace {

// The prefix, if any of its files is there or they lie in a bucket.
std::filesystem::path require_files(std::filesystem::path prefix) {
  std::error_code ignored;
  const auto is_there = [&](const char* suffix) {
    return std::filesystem::exists(with_suffix(prefix, suffix), ignored);
  };
  if (storage::is_s3(prefix.string()) || is_there(".idx") || is_there(".bin")) return prefix;
  const std::filesystem::path folder = prefix.filename() == "corpus" ? prefix.parent_path() : prefix;
  const std::string in_folder = folder == prefix ? text(", and no ", (folder / "corpus.idx").string()) : "";
  throw InputError(text(
      "there is no corpus ", prefix.string(), ": no ", prefix.string(), ".idx with ", prefix.string(), ".bin",
      in_folder, ": name another, or make it (sluice corpus build TEXTS --out ", folder.string(), ")"));
}

// The local index: for an index in a bucket its copy, which is made unless this version's exists.
std::filesystem::path local_index(const std::filesystem::path& path, const IndexedOptions& options) {
  const storage::Location place = place_of(path, options);
  if (place.is_path()) return place.path();
  const std::optional<storage::FileStatus> status = place.status();
  if (!status) throw InputError(text("cannot read ", place.string(), ": there is none: name what is there"));
  const std::string name = base::hash_text(base::hash_bytes(place.string()));
  const std::filesystem::path copy =
      options.cache / text(name, "-", base::hash_text(base::hash_bytes(status->version)), ".idx");
  std::error_code ignored;
  if (std::filesystem::exists(copy, ignored)) return copy;
  base::make_directories(options.cache);
  copy_to_file(place, status->version, copy);
  for (const auto& entry : std::filesystem::directory_iterator(options.cache, ignored)) {
    const bool older = entry.path().filename().string().starts_with(name) && entry.path() != copy;
    if (older && entry.path().extension() == ".idx") std::filesystem::remove(entry.path(), ignored);
  }
  return copy;
}

}  // namespace

IndexedCorpus::IndexedCorpus(const std::filesystem::path& prefix, IndexedOptions options)
    : prefix_(require_files(corpus_prefix(prefix))),
      options_(std::move(options)),
      tokens_file_(place_of(with_suffix(prefix_, ".bin"), options_)) {
  read_index(base::MappedFile(local_index(with_suffix(prefix_, ".idx"), options_)));
  tokens_ = count_tokens();
  const storage::Location labels = place_of(with_suffix(prefix_, ".labels"), options_);
  if (labels.is_file()) labels_ = std::make_unique<const Labels>(labels.read(), labels.string(), documents());
  const storage::Location mask = place_of(with_suffix(prefix_, ".mask"), options_);
  if (!mask.is_file()) return;
  mask_.emplace(mask);
  const int64_t wanted = tokens_file_.size() / token_bytes(type_);
  if (mask_->size() != wanted) {
    throw InputError(text(prefix_.string(), ".mask has ", mask_->size(), " bytes, but .bin has ", wanted,
                          " tokens: a mask holds one byte a token; remove it or make it again"));
  }
}

void IndexedCorpus::read_index(const base::MappedFile& index) {
  const std::string path = prefix_.string() + ".idx";
  const Header header = read_header(index, path);
  check_size(index, header, path);
  type_ = header.type;
  const std::byte* lengths = index.data() + kHeaderBytes;
  const std::byte* offsets = lengths + 4 * header.sequences;
  const std::byte* boundaries = offsets + 8 * header.sequences;
  lengths_.resize(header.sequences);
  offsets_bytes_.resize(header.sequences);
  if (header.sequences > 0) {
    std::memcpy(lengths_.data(), lengths, 4 * header.sequences);
    std::memcpy(offsets_bytes_.data(), offsets, 8 * header.sequences);
  }
  std::vector<int64_t> begins(header.documents);
  for (uint64_t i = 0; i < header.documents; ++i) {
    begins[i] = load<int64_t>(boundaries + 8 * i);
    if (begins[i] < 0 || static_cast<uint64_t>(begins[i]) > header.sequences) {
      throw InputError(text(path, ": entry ", i, " of the document index is ", begins[i], ", but there are ",
                            header.sequences, " sequences", kRebuild));
    }
  }
  join_sequences(begins);
}

void IndexedCorpus::join_sequences(const std::vector<int64_t>& boundaries) {
  const auto sequences = static_cast<int64_t>(lengths_.size());
  const auto refuse = [&](const auto&... fault) {
    throw InputError(text(prefix_.string(), ".idx: ", fault..., kRebuild));
  };
  // Writers that end no document leave only the first entry.
  if (boundaries.size() < 2) return;
  if (boundaries.front() != 0 || boundaries.back() != sequences) {
    refuse("the document index goes from sequence ", boundaries.front(), " to ", boundaries.back(), " of ",
           sequences);
  }
  const auto documents = static_cast<int64_t>(boundaries.size()) - 1;
  std::vector<int32_t> joined_lengths;
  std::vector<int64_t> joined_offsets;
  for (int64_t document = 0; document < documents; ++document) {
    const auto at = static_cast<size_t>(document);
    const int64_t begin = boundaries[at];
    const int64_t end = boundaries[at + 1];
    if (begin > end)
      refuse("entry ", document + 1, " of the document index is ", end, ", below the one before it");
    const int64_t begin_bytes = begin < sequences ? offsets_bytes_[static_cast<size_t>(begin)] : 0;
    int64_t length = 0;
    for (auto sequence = static_cast<size_t>(begin); sequence < static_cast<size_t>(end); ++sequence) {
      if (lengths_[sequence] < 0)
        refuse("sequence ", sequence, " has the negative length ", lengths_[sequence]);
      if (offsets_bytes_[sequence] != begin_bytes + length * token_bytes(type_)) {
        refuse("sequence ", sequence,
               " does not follow the one before it in .bin, although both are of document ", document);
      }
      length += lengths_[sequence];
    }
    if (length > std::numeric_limits<int32_t>::max())
      refuse("document ", document, " has ", length, " tokens");
    joined_lengths.push_back(static_cast<int32_t>(length));
    joined_offsets.push_back(begin_bytes);
  }
  lengths_ = std::move(joined_lengths);
  offsets_bytes_ = std::move(joined_offsets);
}

int64_t IndexedCorpus::count_tokens() const {
  const int64_t size_bytes = tokens_file_.size();
  int64_t tokens = 0;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    if (lengths_[i] < 0) {
      throw InputError(
          text(prefix_.string(), ".idx: sequence ", i, " has the negative length ", lengths_[i], kRebuild));
    }
    const int64_t length_bytes = lengths_[i] * token_bytes(type_);
    const bool inside = offsets_bytes_[i] >= 0 && offsets_bytes_[i] <= size_bytes - length_bytes;
    if (!inside || offsets_bytes_[i] % token_bytes(type_) != 0) {
      throw InputError(text(prefix_.string(), ".idx: sequence ", i, " covers ", length_bytes,
                            " bytes at offset ", offsets_bytes_[i], ", but ", prefix_.string(), ".bin has ",
                            size_bytes, kRebuild));
    }
    tokens += lengths_[i];
  }
  return tokens;
}

int64_t IndexedCorpus::byte_offset(int64_t document, int64_t begin) const {
  return offsets_bytes_[static_cast<size_t>(document)] + begin * token_bytes(type_);
}

void IndexedCorpus::copy_tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const {
  SLUICE_ASSERT(document >= 0 && document < documents() && begin >= 0 && count >= 0 &&
                    begin + count <= length(document),
                text("tokens ", begin, " + ", count, " of document ", document, " of ", prefix_.string()));
  const int64_t at = byte_offset(document, begin);
  auto* bytes = reinterpret_cast<std::byte*>(out);
  if (type_ == TokenType::kInt32) return tokens_file_.read({at, at + 4 * count}, bytes);
  // Narrow tokens are read into the second half, and are widened from front to back.
  const std::byte* narrow = bytes + 2 * count;
  tokens_file_.read({at, at + 2 * count}, bytes + 2 * count);
  for (int64_t i = 0; i < count; ++i) out[i] = load<uint16_t>(narrow + 2 * i);
}

void IndexedCorpus::check_range(std::span<const int32_t> tokens, int64_t vocabulary, int64_t document,
                                int64_t begin) const {
  // As an unsigned number, a negative token is huge.
  const auto limit =
      static_cast<uint32_t>(std::min<int64_t>(vocabulary, int64_t{std::numeric_limits<int32_t>::max()} + 1));
  const auto outside = [limit](int32_t token) { return static_cast<uint32_t>(token) >= limit; };
  const auto found = std::find_if(tokens.begin(), tokens.end(), outside);
  if (found == tokens.end()) return;
  throw InputError(
      text(prefix_.string(), ".bin: document ", document, " has token ", *found, " at position ",
           begin + (found - tokens.begin()), ", but the vocabulary has ", limit,
           " ids: set the model's vocab to the tokenizer's, or build the corpus with its tokenizer"));
}

void IndexedCorpus::read(int64_t document, int64_t begin, int64_t count, int32_t* out) const {
  copy_tokens(document, begin, count, out);
  const int64_t any = int64_t{std::numeric_limits<int32_t>::max()} + 1;
  check_range({out, static_cast<size_t>(count)}, options_.vocabulary > 0 ? options_.vocabulary : any,
              document, begin);
  read_bytes_->fetch_add(count * token_bytes(type_), std::memory_order_relaxed);
}

std::vector<int32_t> IndexedCorpus::read(int64_t document) const {
  std::vector<int32_t> tokens(static_cast<size_t>(length(document)));
  read(document, 0, length(document), tokens.data());
  return tokens;
}

void IndexedCorpus::read_mask(int64_t document, int64_t begin, int64_t count, uint8_t* out) const {
  SLUICE_ASSERT(document >= 0 && document < documents() && begin >= 0 && count >= 0 &&
                    begin + count <= length(document),
                text("mask ", begin, " + ", count, " of document ", document, " of ", prefix_.string()));
  if (count == 0) return;
  if (!mask_) {
    std::fill_n(out, count, uint8_t{1});
    return;
  }
  const int64_t at = byte_offset(document, begin) / token_bytes(type_);
  mask_->read({at, at + count}, reinterpret_cast<std::byte*>(out));
  read_bytes_->fetch_add(count, std::memory_order_relaxed);
}

void IndexedCorpus::check_tokens(int64_t vocabulary) const {
  std::vector<int32_t> tokens;
  for (int64_t document = 0; document < documents(); ++document) {
    tokens.resize(static_cast<size_t>(length(document)));
    copy_tokens(document, 0, length(document), tokens.data());
    check_range(tokens, vocabulary, document, 0);
  }
}

void IndexedCorpus::fetch_ahead(std::span<const TokenRange> ranges) const {
  if (!tokens_file_.is_remote()) return;
  std::vector<base::Interval> tokens, mask;
  for (const TokenRange& range : ranges) {
    const int64_t count = std::min(range.count + 1, length(range.document) - range.begin);
    const int64_t at = byte_offset(range.document, range.begin);
    tokens.push_back({at, at + count * token_bytes(type_)});
    mask.push_back({at / token_bytes(type_), at / token_bytes(type_) + count});
  }
  tokens_file_.fetch_ahead(std::move(tokens));
  if (mask_) mask_->fetch_ahead(std::move(mask));
}

bool IndexedCorpus::has_targets() const {
  if (!mask_) return true;
  std::vector<std::byte> piece(kMaskBytes);
  for (int64_t begin = 0; begin < mask_->size(); begin += kMaskBytes) {
    const int64_t end = std::min<int64_t>(mask_->size(), begin + static_cast<int64_t>(kMaskBytes));
    mask_->read({begin, end}, piece.data());
    const auto read = std::span(piece).first(static_cast<size_t>(end - begin));
    if (std::ranges::any_of(read, [](std::byte counts) { return counts != std::byte{0}; })) return true;
  }
  return false;
}

uint64_t IndexedCorpus::index_hash() const {
  base::CanonicalBytes bytes;
  bytes.add(static_cast<int64_t>(type_));
  bytes.add(static_cast<int64_t>(base::hash_bytes(lengths_.data(), 4 * lengths_.size())));
  bytes.add(static_cast<int64_t>(base::hash_bytes(offsets_bytes_.data(), 8 * offsets_bytes_.size())));
  return bytes.hash();
}

namespace {

// Calls visit(bytes) for blocks spread evenly over the file, or for the whole file if it is small.
template <typename Visit>
void sample(const CorpusBytes& file, Visit visit) {
  constexpr int64_t kBlock = IndexedCorpus::kContentBlockBytes;
  constexpr int64_t kLast = IndexedCorpus::kContentBlocks - 1;
  std::vector<base::Interval> blocks;
  if (file.size() <= (kLast + 1) * kBlock) {
    blocks.push_back({0, file.size()});
  } else {
    // size - kBlock is the last block's place; the product stays below 2^63 for files up to 32 PiB.
    for (int64_t block = 0; block <= kLast; ++block) {
      const int64_t begin = (file.size() - kBlock) * block / kLast;
      blocks.push_back({begin, begin + kBlock});
    }
  }
  file.fetch_ahead(blocks);
  std::vector<std::byte> bytes;
  for (const base::Interval& block : blocks) {
    bytes.resize(static_cast<size_t>(block.size()));
    file.read(block, bytes.data());
    visit(std::span<const std::byte>(bytes));
  }
  file.fetch_ahead({});
}

void add_sampled(base::CanonicalBytes& hashes, const CorpusBytes& file) {
  hashes.add(file.size());
  sample(file, [&](std::span<const std::byte> bytes) {
    hashes.add(static_cast<int64_t>(base::hash_bytes(bytes.data(), bytes.size())));
  });
}

}  // namespace

int64_t IndexedCorpus::loss_ppm() const {
  constexpr int64_t kAll = 1'000'000;
  if (!mask_) return kAll;
  int64_t counted = 0, seen = 0;
  sample(*mask_, [&](std::span<const std::byte> bytes) {
    counted += std::ranges::count_if(bytes, [](std::byte counts) { return counts != std::byte{0}; });
    seen += static_cast<int64_t>(bytes.size());
  });
  return std::max<int64_t>(1, counted * kAll / std::max<int64_t>(1, seen));
}

uint64_t IndexedCorpus::content_hash() const {
  base::CanonicalBytes hashes;
  add_sampled(hashes, tokens_file_);
  if (mask_) add_sampled(hashes, *mask_);
  return hashes.hash();
}

IndexedWriter::IndexedWriter(const std::filesystem::path& prefix, IndexedWriterOptions options)
    : prefix_(corpus_prefix(prefix)),
      options_(std::move(options)),
      type_(token_type_for(options_.vocabulary)) {
  if (!options_.unfinished) options_.unfinished = std::make_shared<Unfinished>(prefix_, "");
  continue_saved();
  const std::filesystem::path& folder = options_.unfinished->folder();
  tokens_file_.emplace(folder / "bin", tokens_ * token_bytes(type_));
  lengths_file_.emplace(folder / "lengths", static_cast<int64_t>(4 * lengths_.size()));
  if (options_.mask == MaskFile::kWrite) mask_file_.emplace(folder / "mask", tokens_);
  if (options_.labels == LabelFile::kWrite) labels_file_.emplace(folder / "labels", label_bytes_);
  if (options_.marks != MarkFile::kNone)
    marks_file_.emplace(folder / "marks", static_cast<int64_t>(sizeof(DocumentMark) * lengths_.size()));
}

std::vector<DocumentMark> IndexedWriter::saved_marks() const {
  std::vector<DocumentMark> marks(saved_lengths_);
  if (!marks_file_ || marks.empty()) return {};
  const base::MappedFile file(options_.unfinished->folder() / "marks");
  std::memcpy(marks.data(), file.data(), sizeof(DocumentMark) * marks.size());
  return marks;
}

void IndexedWriter::continue_saved() {
  const base::Json& state = options_.unfinished->state();
  if (state.is_null()) return;
  const std::string name = options_.unfinished->folder().string();
  tokens_ = base::require<int64_t>(state, "tokens", name);
  if (options_.labels == LabelFile::kWrite) label_bytes_ = base::require<int64_t>(state, "label_bytes", name);
  lengths_.resize(base::require<size_t>(state, "documents", name));
  saved_lengths_ = lengths_.size();
  const base::MappedFile lengths(options_.unfinished->folder() / "lengths");
  const bool whole = lengths.size() >= 4 * lengths_.size();
  if (whole && !lengths_.empty()) std::memcpy(lengths_.data(), lengths.data(), 4 * lengths_.size());
  const int64_t sum = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
  if (!whole || sum != tokens_) {
    throw InputError(text(name, " is damaged: remove it to begin anew"));
  }
}

void IndexedWriter::add(std::span<const int32_t> tokens, std::span<const uint8_t> mask,
                        const DocumentMark& mark, std::string_view label) {
  SLUICE_ASSERT(label.empty() == !labels_file_, text("a label '", label, "'"));
  SLUICE_ASSERT(mask.size() == (mask_file_ ? tokens.size() : 0), text(mask.size(), " mask bytes"));
  SLUICE_ASSERT(tokens.size() <= std::numeric_limits<int32_t>::max(), text(tokens.size(), " tokens"));
  for (const int32_t token : tokens) {
    SLUICE_ASSERT(token >= 0 && (options_.vocabulary == 0 || token < options_.vocabulary),
                  text("token ", token, " of ", options_.vocabulary));
    if (type_ == TokenType::kUint16) {
      append(token_buffer_, static_cast<uint16_t>(token));
    } else {
      append(token_buffer_, token);
    }
  }
  mask_buffer_.append(reinterpret_cast<const char*>(mask.data()), mask.size());
  if (marks_file_) append(mark_buffer_, mark);
  if (labels_file_) label_buffer_.append(label).append("\n");
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  tokens_ += static_cast<int64_t>(tokens.size());
  if (token_buffer_.size() >= kMaskBytes) flush_tokens();
}

void IndexedWriter::flush_tokens() {
  tokens_file_->write(token_buffer_);
  token_buffer_.clear();
  if (mask_file_) mask_file_->write(mask_buffer_);
  mask_buffer_.clear();
  if (marks_file_) marks_file_->write(mark_buffer_);
  mark_buffer_.clear();
  if (labels_file_) labels_file_->write(label_buffer_);
  label_bytes_ += std::ssize(label_buffer_);
  label_buffer_.clear();
}

void IndexedWriter::save(base::Json fields) {
  flush_tokens();
  const auto* unsaved = reinterpret_cast<const char*>(lengths_.data() + saved_lengths_);
  lengths_file_->write({unsaved, 4 * (lengths_.size() - saved_lengths_)});
  saved_lengths_ = lengths_.size();
  tokens_file_->sync();
  lengths_file_->sync();
  if (mask_file_) mask_file_->sync();
  if (marks_file_) marks_file_->sync();
  if (labels_file_) labels_file_->sync();
  fields["tokens"] = tokens_;
  fields["documents"] = lengths_.size();
  fields["label_bytes"] = label_bytes_;
  options_.unfinished->save(std::move(fields));
}

std::string IndexedWriter::index_bytes() const {
  const auto sequences = static_cast<uint64_t>(lengths_.size());
  std::string bytes(kMagic);
  append(bytes, kVersion);
  append(bytes, static_cast<uint8_t>(type_));
  append(bytes, sequences);
  append(bytes, sequences + 1);
  for (const int32_t length : lengths_) append(bytes, length);
  int64_t offset_bytes = 0;
  for (const int32_t length : lengths_) {
    append(bytes, offset_bytes);
    offset_bytes += length * token_bytes(type_);
  }
  for (uint64_t document = 0; document <= sequences; ++document)
    append(bytes, static_cast<int64_t>(document));
  return bytes;
}

void IndexedWriter::retire_older() {
  std::error_code ignored;
  std::filesystem::remove(with_suffix(prefix_, ".idx"), ignored);
}

void IndexedWriter::commit() {
  flush_tokens();
  base::AtomicFile index(with_suffix(prefix_, ".idx"));
  index.write(index_bytes());
  retire_older();
  std::error_code ignored;
  for (const char* suffix : {".mask", ".marks", ".labels"})
    std::filesystem::remove(with_suffix(prefix_, suffix), ignored);
  tokens_file_->move_to(with_suffix(prefix_, ".bin"));
  if (mask_file_) mask_file_->move_to(with_suffix(prefix_, ".mask"));
  if (labels_file_) labels_file_->move_to(with_suffix(prefix_, ".labels"));
  if (options_.marks == MarkFile::kKeep) marks_file_->move_to(with_suffix(prefix_, ".marks"));
  index.commit();
  options_.unfinished.reset();
}

}  // namespace sluice::corpus
