// How well an embedding model finds texts: each query's own document among all documents, by cosine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "run/head_objective.h"

namespace sluice::run {

// Means over queries, each of which has one relevant document, as sentence-transformers'
// InformationRetrievalEvaluator takes them. A document that is as near as the relevant one counts as nearer.
struct RetrievalScores {
  int64_t queries = 0;
  int64_t documents = 0;  // texts that occur twice count once
  double recall_at_1 = 0;
  double recall_at_10 = 0;
  double mrr_at_10 = 0;   // 1 / rank, 0 behind the tenth
  double ndcg_at_10 = 0;  // 1 / log2(1 + rank), 0 behind the tenth
};

// Which texts are the same.
base::WideHash text_hash(std::span<const int32_t> tokens);

// Groups of so many texts, one behind the other: a query, its document, and others that are none. `hashes`:
// of each text. REQUIRES: at least two texts in a group, and one group.
RetrievalScores retrieval_scores(const std::vector<TextNumbers>& embeddings,
                                 const std::vector<base::WideHash>& hashes, int64_t texts_of_group);

}  // namespace sluice::run
