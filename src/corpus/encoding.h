// Encodes the documents of many files into a corpus, on all cores: one thread reads and writes, the others
// parse and tokenize.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_set>
#include <vector>

#include "corpus/build_part.h"
#include "corpus/documents.h"
#include "corpus/indexed.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

struct HashOfHash {
  size_t operator()(const base::WideHash& hash) const { return hash.low; }
};
using DocumentHashes = std::unordered_set<base::WideHash, HashOfHash>;

// Counts of one input's contribution to the corpus.
struct SourceCounts {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t duplicates = 0;  // documents left out
  int64_t rows = 0;        // rows read, empty and unreadable ones included
};

// The progress and the counts of an encoding.
struct Encoded {
  DocumentCounts counts;
  int64_t changed_documents = 0;      // documents that the tokenizer does not decode to the original text
  int64_t loss_tokens = 0;            // conversations: tokens that the mask lets count
  ChatCounts chats;                   // all conversations read, duplicates included
  std::vector<int64_t> token_counts;  // occurrences of each id
  std::vector<SourceCounts> sources;
  int64_t file = 0;            // number of the file being read
  int64_t read_documents = 0;  // raw documents read of that file
};

// Counts a document as written. Its bytes were counted when it was read.
void count_document(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                    Encoded& encoded);
// Counts a document as left out, because an earlier one is the same, and removes it from the documents read.
void count_duplicate(const DocumentMark& mark, Encoded& encoded);
// Likewise for a document that count_document() has counted.
void uncount_duplicate(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                       Encoded& encoded);
// Adds another part's counts.
void add_counts(const Encoded& more, Encoded& sum);

base::Json to_json(const Encoded& encoded);
Encoded encoded_from_json(const base::Json& json, const std::string& name);

struct EncodingOptions {
  DocumentOptions documents;
  BuildPart part;
  bool leave_out_duplicates = false;  // leave out documents equal to an earlier one
  std::filesystem::path copies;       // folder for copies of input files in buckets, while they are read
  int workers = 1;                    // threads beside the caller's; each calls the tokenizer
  int64_t save_bytes = 64 << 20;      // bytes of input between two saves
  std::function<void(int64_t read_bytes)> on_progress;  // over all files, in order; may be empty
};

// Continues from `encoded`, the state from which `writer` continues, and adds the remaining documents of the
// files to the writer in order, saving now and then. A part adds only its own documents. InputError as
// read_documents and texts_of, for the first document that is wrong.
void encode_files(const std::vector<InputFile>& files, const EncodingOptions& options,
                  const Tokenizer& tokenizer, IndexedWriter& writer, Encoded& encoded);

}  // namespace sluice::corpus
