// Retrieval scores of an embedding model: it ranks all documents for each query by cosine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "run/head_objective.h"

namespace sluice::run {

// Means over queries, each with one relevant document, as in sentence-transformers'
// InformationRetrievalEvaluator. A document that is exactly as near as the relevant one counts as nearer.
struct RetrievalScores {
  int64_t queries = 0;
  int64_t documents = 0;  // texts that occur twice count once
  double recall_at_1 = 0;
  double recall_at_10 = 0;
  double mrr_at_10 = 0;   // 1 / rank, 0 beyond rank 10
  double ndcg_at_10 = 0;  // 1 / log2(1 + rank), 0 beyond rank 10
};

// A hash that is equal for equal texts.
base::WideHash text_hash(std::span<const int32_t> tokens);

// Groups of so many consecutive texts: a query, its document, and other documents. `hashes`: of each text.
// REQUIRES: at least two texts in a group, and one group.
RetrievalScores retrieval_scores(const std::vector<TextNumbers>& embeddings,
                                 const std::vector<base::WideHash>& hashes, int64_t texts_of_group);

}  // namespace sluice::run
