// Chooses the sequences of each step: a pure function of lengths, options and step number, computed in
// integers, so every rank and machine gets the same result.
//
// Each corpus is traversed in a seeded permutation, without replacement, with a new permutation every epoch.
// The next sequence comes from the corpus whose share of the tokens so far lags its weight most. A batch
// takes sequences in that order while their sum stays within tokens_per_step, at least one. The sequence that
// did not fit begins the next batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/permutation_table.h"
#include "corpus/batch_source.h"
#include "corpus/blend.h"

namespace sluice::corpus {

// The treatment of a document longer than the context.
enum class Overflow {
  kTruncate,  // its first context_length tokens are one sequence
  kSplit,     // consecutive sequences of context_length tokens; a rest under 2 tokens is dropped
  kDrop,      // it is left out
};

// "truncate", "split", "drop" and back; InputError naming `key` otherwise.
std::string name(Overflow overflow);
Overflow parse_overflow(const std::string& value, const std::string& key);

// A side of the train/validation split.
enum class Subset { kTraining, kValidation };

struct SamplerOptions {
  int64_t context_length = 2048;  // tokens; longest sequence
  Overflow overflow = Overflow::kTruncate;
  int64_t tokens_per_step = 16384;    // limit per batch, unless its first sequence alone is longer
  uint64_t seed = 1;                  // seeds the permutations
  int64_t validation_ppm = 0;         // parts per million of the documents held out
  uint64_t validation_seed = 0;       // chooses them: independent of `seed` and of the rest of the blend
  Subset subset = Subset::kTraining;  // the documents that are sampled
};

// Whether the document of this number in its corpus belongs to the validation subset.
bool is_held_out(int64_t document, const SamplerOptions& options);

// Counts of documents and of tokens left out in each epoch, over all corpora of the blend.
struct SamplerCounts {
  int64_t documents = 0;        // sampled
  int64_t other_subset = 0;     // on the other side of the split
  int64_t short_documents = 0;  // shorter than 2 tokens
  int64_t long_documents = 0;   // longer than the context: truncated, split or dropped
  int64_t lost_tokens = 0;      // tokens of this subset, cut off or dropped
  bool operator==(const SamplerCounts&) const = default;
};

// Not thread-safe; copies are independent.
class Sampler final : public BatchSource {
 public:
  // Copies the needed lengths. InputError if the context is shorter than 2, tokens_per_step below 1,
  // validation_ppm outside [0, 1000000], or a corpus has no document to sample.
  Sampler(const std::vector<LengthSource>& sources, const SamplerOptions& options);

  // InputError if the batch would hold more than kMostSequences: then tokens_per_step is far too large.
  Batch next() override;
  // Equivalent to `steps` calls of next(). A batch begins where the one before ended, and each epoch has its
  // own order, so all skipped sequences are drawn: some 20 ns each, without reading tokens.
  void skip(int64_t steps) override;

  // Counts steps from `step` on: the next batch has this number and begins at the start of the corpora.
  // REQUIRES: no batch was drawn.
  void begin_at(int64_t step) override { step_ = step; }

  SamplerState state() const override;
  // InputError, naming `where` the state came from, if the state belongs to other data or options.
  void restore(const SamplerState& state, const std::string& where = "the checkpoint") override;

  const SamplerCounts& counts() const { return counts_; }
  int64_t step() const override { return step_; }
  // Complete epochs of each corpus so far.
  std::vector<int64_t> epochs() const;
  std::vector<int64_t> delivered_tokens() const;

 private:
  struct Document {
    int32_t index = 0;  // in its corpus
    int32_t length_tokens = 0;
  };
  struct Source {
    std::vector<Document> documents;  // documents that are sampled
    int64_t first_document = 0;       // number in the blend of the corpus's document 0
    int64_t weight_ppm = 0;
    uint64_t stream = 0;  // random stream of the permutations
    SamplerState::Cursor cursor;
    int64_t epoch = -1;  // epoch of `order`
    base::PermutationTable order{1, 0, 0};
    std::optional<Document> current;  // the document at the cursor, once computed
  };

  size_t lagging_source() const;
  const Document& current_document(Source& source) const;
  Sample peek(Source& source) const;
  void take(Source& source, const Sample& sample);
  bool begins_sequence(Source& source) const;
  template <typename Visit>
  void draw_batch(const Visit& visit);

  SamplerOptions options_;
  std::vector<Source> sources_;
  int64_t total_weight_ppm_ = 0;
  int64_t delivered_tokens_ = 0;
  SamplerCounts counts_;
  uint64_t fingerprint_ = 0;
  int64_t step_ = 0;
};

// Each sequence of the subset once, corpus by corpus in document order, in batches by the same rule: the
// order of evaluation. `seed` has no influence. Empty if there is nothing to sample.
std::vector<Batch> batches_in_order(const std::vector<LengthSource>& sources, const SamplerOptions& options);

}  // namespace sluice::corpus
