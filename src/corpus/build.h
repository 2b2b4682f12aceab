// Builds a corpus on disk from text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/build_part.h"
#include "corpus/build_result.h"
#include "corpus/documents.h"
#include "corpus/lengths.h"
#include "corpus/tokenizer.h"

namespace sluice::corpus {

struct BuildOptions {
  std::vector<std::filesystem::path> inputs;  // text and JSON files, directories
  std::filesystem::path directory;            // receives the corpus; made when absent
  std::filesystem::path tokenizer_file;       // a file or a folder; or:
  int64_t train_vocabulary = 0;               // pieces of a tokenizer trained on the inputs
  int64_t sample_bytes = 10'000'000;          // limit on the text that training a tokenizer reads
  InputOptions finding;                       // its output is `directory`, chosen here
  DocumentOptions documents;
  BuildPart part;
  bool leave_out_duplicates = false;
  int threads = 0;                // tokenizing threads; 0: one a core
  int64_t save_bytes = 64 << 20;  // input bytes between two points from which a killed build can continue
  TokenizerOptions tokenizer;     // threads, callers and chats are chosen here
  // Called now and then with the current stage, the bytes done and the bytes in total; may be empty.
  std::function<void(std::string_view stage, int64_t done_bytes, int64_t total_bytes)> on_progress;
};

// Writes corpus.bin, corpus.idx, the tokenizer (tokenizer.model, or tokenizer.json as given, with its
// tokenizer_config.json) and lengths.json into the directory. Each document stands between the tokenizer's
// begin and end tokens. Conversations (options.documents.chats) also get corpus.mask, the loss mask that
// selects the assistant's tokens, and the chat template beside the tokenizer. The same inputs give the same
// bytes on every machine.
//
// A build that is killed, or finds the disk full, leaves corpus.unfinished. A build of the same inputs and
// options continues from there; inputs are identified by path, size and time.
//
// A part (options.part) writes the corpus of its own documents, possibly none, and part.json. merge_corpora()
// joins all parts into what one build would have made. REQUIRES for parts: no train_vocabulary.
//
// InputError for wrong inputs, with nothing written, or while another process builds there; RunError for a
// full disk. REQUIRES: either tokenizer_file or train_vocabulary is set.
BuildResult build_corpus(const BuildOptions& options);

}  // namespace sluice::corpus
