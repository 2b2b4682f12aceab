// Documents of many files into a corpus, on all cores: one thread reads and writes, the others parse and
// tokenize.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "corpus/documents.h"
#include "corpus/indexed.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

// How far an encoding has come.
struct Encoded {
  DocumentCounts counts;
  int64_t changed_documents = 0;      // that the tokenizer does not give back as they were
  int64_t learnt_tokens = 0;          // of conversations: that the mask lets count
  ChatCounts chats;                   // of these
  std::vector<int64_t> token_counts;  // of each id
  int64_t file = 0;                   // being read
  int64_t read_documents = 0;         // of that file, raw ones
};

base::Json to_json(const Encoded& encoded);
Encoded encoded_from_json(const base::Json& json, const std::string& name);

struct EncodingOptions {
  DocumentOptions documents;
  int workers = 1;                // threads beside the caller's, each of which calls the tokenizer
  int64_t save_bytes = 64 << 20;  // of input between two saves
  std::function<void(int64_t read_bytes)> on_progress;  // of all files, in order; may be empty
};

// Goes on from `encoded`, the state that `writer` continues from, through the files, and adds their documents
// to the writer in order, saving now and then. InputError as read_documents and texts_of, of the first
// document that is wrong.
void encode_files(const std::vector<InputFile>& files, const EncodingOptions& options,
                  const Tokenizer& tokenizer, IndexedWriter& writer, Encoded& encoded);

}  // namespace sluice::corpus
