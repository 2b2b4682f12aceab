// Q: queries in a block, D: documents, H: numbers in an embedding.
#include "run/text_retrieval.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace sluice::run {
namespace {

constexpr int64_t kNearest = 10;
constexpr int64_t kBlockQueries = 256;  // their cosines with all documents are in memory together

// Rows scaled to length one; rows of zeros stay zero.
at::Tensor unit_rows(const std::vector<const TextNumbers*>& texts) {
  const auto width = static_cast<int64_t>(texts.front()->size());
  at::Tensor rows = at::empty({static_cast<int64_t>(texts.size()), width}, at::kDouble);
  for (size_t i = 0; i < texts.size(); ++i)
    std::ranges::copy(*texts[i], rows.data_ptr<double>() + static_cast<int64_t>(i) * width);
  constexpr double kLeast = 1e-12;  // as torch.nn.functional.normalize
  return rows.div_(rows.norm(2, {1}, /*keepdim=*/true).clamp_min(kLeast));
}

// For each query in a block the number of documents at least as near as its own.
std::vector<int64_t> ranks_of(const at::Tensor& query_QH, const at::Tensor& document_DH,
                              const std::vector<int64_t>& own_Q) {
  constexpr double kRounding = 1e-9;  // rounding error of a cosine
  const at::Tensor cosine_QD = query_QH.mm(document_DH.t());
  const at::Tensor own_Q1 = cosine_QD.gather(1, at::tensor(own_Q, at::kLong).unsqueeze(1));
  const at::Tensor rank_Q = cosine_QD.ge(own_Q1 - kRounding).sum(1);
  return {rank_Q.const_data_ptr<int64_t>(), rank_Q.const_data_ptr<int64_t>() + rank_Q.numel()};
}

}  // namespace

base::WideHash text_hash(std::span<const int32_t> tokens) {
  return base::wide_hash_bytes({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

RetrievalScores retrieval_scores(const std::vector<TextNumbers>& embeddings,
                                 const std::vector<base::WideHash>& hashes, int64_t texts_of_group) {
  std::vector<const TextNumbers*> queries, documents;
  std::vector<int64_t> own;  // each query's document
  std::map<std::pair<uint64_t, uint64_t>, int64_t> known;
  for (size_t i = 0; i < embeddings.size(); ++i) {
    const auto place = static_cast<int64_t>(i) % texts_of_group;
    if (place == 0) {
      queries.push_back(&embeddings[i]);
      continue;
    }
    const auto [document, added] = known.try_emplace({hashes[i].low, hashes[i].high}, std::ssize(documents));
    if (added) documents.push_back(&embeddings[i]);
    if (place == 1) own.push_back(document->second);
  }
  RetrievalScores scores{.queries = std::ssize(queries), .documents = std::ssize(documents)};
  const at::Tensor query_NH = unit_rows(queries), document_DH = unit_rows(documents);
  for (int64_t begin = 0; begin < scores.queries; begin += kBlockQueries) {
    const int64_t count = std::min(kBlockQueries, scores.queries - begin);
    const auto first = own.begin() + begin;
    for (const int64_t rank :
         ranks_of(query_NH.narrow(0, begin, count), document_DH, {first, first + count})) {
      if (rank > kNearest) continue;
      const auto place = static_cast<double>(rank);
      scores.recall_at_1 += rank == 1 ? 1 : 0;
      scores.recall_at_10 += 1;
      scores.mrr_at_10 += 1 / place;
      scores.ndcg_at_10 += 1 / std::log2(1 + place);
    }
  }
  for (double* const sum : {&scores.recall_at_1, &scores.recall_at_10, &scores.mrr_at_10, &scores.ndcg_at_10})
    *sum /= static_cast<double>(scores.queries);
  return scores;
}

}  // namespace sluice::run
