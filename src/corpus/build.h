// From text to a corpus on disk.
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
  std::filesystem::path directory;            // where the corpus goes; made when absent
  std::filesystem::path tokenizer_file;       // a file or a folder; or:
  int64_t train_vocabulary = 0;               // pieces of a tokenizer trained on the inputs
  int64_t sample_bytes = 10'000'000;          // of text that training a tokenizer reads at most
  InputOptions finding;                       // its output is `directory`, chosen here
  DocumentOptions documents;
  BuildPart part;
  bool leave_out_duplicates = false;
  int threads = 0;                // that tokenize; 0: one a core
  int64_t save_bytes = 64 << 20;  // of input after which a killed build can continue
  TokenizerOptions tokenizer;     // threads, callers and chats are chosen here
  // Called now and then with what is going on and how many bytes of how many are done; may be empty.
  std::function<void(std::string_view stage, int64_t done_bytes, int64_t total_bytes)> on_progress;
};

// Writes corpus.bin, corpus.idx, the tokenizer (tokenizer.model, or tokenizer.json as given, with its
// tokenizer_config.json) and lengths.json into the directory. Each document stands between the tokenizer's
// begin and end tokens. Of conversations (options.documents.chats) also corpus.mask, which lets count what
// the model is to say, and the chat template beside the tokenizer. The same inputs give the same bytes on
// every machine.
//
// A build that is killed, or finds the disk full, leaves corpus.unfinished, from which a build of the same
// inputs and options continues; inputs are known by path, size and time.
//
// A part (options.part) writes the corpus of its own documents, which may be none, and part.json, by which
// merge_corpora() makes of all parts what one build would have made. REQUIRES of parts: no train_vocabulary.
//
// InputError for wrong inputs, with nothing written, or while another process builds there; RunError for a
// full disk. REQUIRES: either tokenizer_file or train_vocabulary is set.
BuildResult build_corpus(const BuildOptions& options);

}  // namespace sluice::corpus
