// sluice eval for an embedding model: it ranks documents for queries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corpus/blend.h"
#include "corpus/sampler.h"
#include "run/evaluator.h"
#include "run/text_retrieval.h"

namespace sluice::cli {

// Corpora whose documents form groups: for each number a query, the document that it looks for, and other
// documents if given.
struct RetrievalCorpora {
  corpus::Blend queries;
  std::vector<corpus::Blend> partners;  // the wanted documents' corpus first

  // InputError if the corpora have different numbers of documents.
  static RetrievalCorpora open(const std::vector<std::string>& queries,
                               const std::vector<std::vector<std::string>>& partners,
                               const corpus::IndexedOptions& options);

  int64_t longest_text(int64_t most_groups) const;  // tokens
};

struct RetrievalOptions {
  int64_t context_length = 2048;  // tokens of a text at most
  corpus::Overflow overflow = corpus::Overflow::kTruncate;
  int64_t tokens_per_batch = 8192;
  int64_t most_queries = 0;  // 0: all
  int rank = 0;
};

// Texts that are too long are cut, in front of the token that ends all texts of their corpus, or their groups
// are left out. Collective; the same on all ranks. InputError if no group is left, RunError if the model's
// numbers are not finite.
run::RetrievalScores evaluate_retrieval(run::Evaluator& evaluator, const RetrievalCorpora& corpora,
                                        const RetrievalOptions& options);

}  // namespace sluice::cli
