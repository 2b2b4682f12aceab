// Documents of many files into a corpus, on all cores: one thread reads and writes, the others parse and
// tokenize.
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

// Of one of the inputs: what the corpus has of it.
struct SourceCounts {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t duplicates = 0;  // that were left out
  int64_t rows = 0;        // that were read, empty ones and such as cannot be read among them
};

// How far an encoding has come.
struct Encoded {
  DocumentCounts counts;
  int64_t changed_documents = 0;      // that the tokenizer does not give back as they were
  int64_t loss_tokens = 0;            // of conversations: that the mask lets count
  ChatCounts chats;                   // of all that were read, duplicates too
  std::vector<int64_t> token_counts;  // of each id
  std::vector<SourceCounts> sources;
  int64_t file = 0;            // being read
  int64_t read_documents = 0;  // of that file, raw ones
};

// Counts a document that is written. Reading has counted its bytes.
void count_document(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                    Encoded& encoded);
// Counts a document that is left out, because an earlier one is the same, and no more as one that was read.
void count_duplicate(const DocumentMark& mark, Encoded& encoded);
// The same of one that count_document() has counted.
void uncount_duplicate(const DocumentMark& mark, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                       Encoded& encoded);
// What was counted of another part.
void add_counts(const Encoded& more, Encoded& sum);

base::Json to_json(const Encoded& encoded);
Encoded encoded_from_json(const base::Json& json, const std::string& name);

struct EncodingOptions {
  DocumentOptions documents;
  BuildPart part;
  bool leave_out_duplicates = false;  // of documents that came before
  std::filesystem::path copies;       // a folder for files of inputs in buckets, while they are read
  int workers = 1;                    // threads beside the caller's, each of which calls the tokenizer
  int64_t save_bytes = 64 << 20;      // of input between two saves
  std::function<void(int64_t read_bytes)> on_progress;  // of all files, in order; may be empty
};

// Goes on from `encoded`, the state that `writer` continues from, through the files, and adds their documents
// to the writer in order, saving now and then; of a part, those that are its own. InputError as
// read_documents and texts_of, of the first document that is wrong.
void encode_files(const std::vector<InputFile>& files, const EncodingOptions& options,
                  const Tokenizer& tokenizer, IndexedWriter& writer, Encoded& encoded);

}  // namespace sluice::corpus
