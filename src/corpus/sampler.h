// Which sequences each iteration trains on: a pure function of lengths, options and step number, computed in
// integers, the same on every rank and machine.
//
// Each corpus is passed through in a seeded permutation, without replacement, a new one every epoch. The
// next sequence comes from the corpus whose share of the tokens so far lags its weight most. A batch takes
// sequences in that order while their sum stays within tokens_per_step, at least one; the one that did not
// fit begins the next batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/permutation_table.h"
#include "corpus/batch_source.h"
#include "corpus/blend.h"

namespace sluice::corpus {

// What happens to a document longer than the context.
enum class Overflow {
  kTruncate,  // its first context_length tokens are one sequence
  kSplit,     // consecutive sequences of context_length tokens; a rest under 2 tokens is dropped
  kDrop,      // it is left out
};

// "truncate", "split", "drop" and back; InputError naming `key` otherwise.
std::string name(Overflow overflow);
Overflow parse_overflow(const std::string& value, const std::string& key);

// Which side of the train/validation split.
enum class Subset { kTraining, kValidation };

struct SamplerOptions {
  int64_t context_length = 2048;  // tokens; longest sequence
  Overflow overflow = Overflow::kTruncate;
  int64_t tokens_per_step = 16384;    // of a batch, unless its first sequence alone is longer
  uint64_t seed = 1;                  // of the permutations
  int64_t validation_ppm = 0;         // parts per million of the documents held out
  uint64_t validation_seed = 0;       // which ones: independent of `seed` and of the rest of the blend
  Subset subset = Subset::kTraining;  // which documents are sampled
};

// Whether the document of this number in its corpus belongs to the validation subset.
bool is_held_out(int64_t document, const SamplerOptions& options);

// What the sampler leaves out of each epoch, over all corpora of the blend.
struct SamplerCounts {
  int64_t documents = 0;        // sampled
  int64_t other_subset = 0;     // on the other side of the split
  int64_t short_documents = 0;  // under 2 tokens
  int64_t long_documents = 0;   // over the context: truncated, split or dropped
  int64_t lost_tokens = 0;      // cut off or dropped, of this subset
  bool operator==(const SamplerCounts&) const = default;
};

// Not thread-safe; copies are independent.
class Sampler final : public BatchSource {
 public:
  // Copies what it needs of the lengths. InputError when the context is shorter than 2, tokens_per_step
  // below 1, validation_ppm outside [0, 1000000], or a corpus has no document to sample.
  Sampler(const std::vector<LengthSource>& sources, const SamplerOptions& options);

  // InputError when the batch would hold more than kMostSequences: tokens_per_step is far too large then.
  Batch next() override;
  // As `steps` calls of next(). Each batch begins where the one before it ended, and each epoch has an order
  // of its own, so all sequences are drawn: some 20 ns each, without reading tokens.
  void skip(int64_t steps) override;

  // Counts from this step on: the next batch, whose number it is, begins where the corpora begin.
  // REQUIRES: no batch was drawn.
  void begin_at(int64_t step) override { step_ = step; }

  SamplerState state() const override;
  // InputError, naming `where` the state came from, when it belongs to other data or options.
  void restore(const SamplerState& state, const std::string& where = "the checkpoint") override;

  const SamplerCounts& counts() const { return counts_; }
  int64_t step() const override { return step_; }
  // Whole passes through each corpus so far.
  std::vector<int64_t> epochs() const;
  std::vector<int64_t> delivered_tokens() const;

 private:
  struct Document {
    int32_t index = 0;  // in its corpus
    int32_t length_tokens = 0;
  };
  struct Source {
    std::vector<Document> documents;  // that are sampled
    int64_t first_document = 0;       // number in the blend of the corpus's document 0
    int64_t weight_ppm = 0;
    uint64_t stream = 0;  // of its permutations
    SamplerState::Cursor cursor;
    int64_t epoch = -1;  // of `order`
    base::PermutationTable order{1, 0, 0};
    std::optional<Document> current;  // the document at the cursor, once it is looked at
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

// Every sequence of the subset once, corpus by corpus in document order, in batches of the same rule: how
// evaluation goes through a corpus. `seed` has no influence. Empty when there is nothing to sample.
std::vector<Batch> batches_in_order(const std::vector<LengthSource>& sources, const SamplerOptions& options);

}  // namespace sluice::corpus
