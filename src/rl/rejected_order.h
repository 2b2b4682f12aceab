// The order in which KTO draws unwanted answers, which are not paired with wanted ones.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/permutation_table.h"
#include "corpus/sampler.h"

namespace sluice::rl {

// A seeded permutation of the documents that are not held out, a new one each epoch. A document is held out
// by its number in its corpus, as wanted answers are. If both files have the same prompts, held-out prompts
// of one are not drawn from the other either. Not thread-safe.
class RejectedOrder {
 public:
  // `corpora`: their documents are numbered through. InputError if all of them are held out.
  RejectedOrder(std::span<const corpus::LengthSource> corpora, const corpus::SamplerOptions& options);

  // The document at a place of the order, counted through all epochs. REQUIRES: not below 0.
  int64_t at(int64_t place);

 private:
  std::vector<int32_t> documents_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // the epoch of `order_`
  std::optional<base::PermutationTable> order_;
};

}  // namespace sluice::rl
