#include "model/head_parts.h"

#include <algorithm>
#include <variant>

#include "model/kind.h"
#include "model/layer.h"

namespace sluice::model {

HeadCounts head_counts(const Model& model, int tp) {
  return {model.heads() / tp, std::max<int64_t>(1, model.kv_heads() / tp)};
}

AttendingHeads attending_heads(const Model& model, const Kind& kind, int tp) {
  if (const Layer* layer = kind.layer()) {
    for (const Part& part : layer->parts) {
      const auto* own = std::get_if<Attention>(&part.mixer);
      if (own != nullptr) return {{own->heads / tp, std::max<int64_t>(1, own->kv_heads / tp)}, own->head_dim};
    }
  }
  return {head_counts(model, tp), model.head_dim()};
}

AttendingHeads decoding_heads(const Model& model, const Kind& kind, int tp) {
  const AttendingHeads own = attending_heads(model, kind, tp);
  const LatentAttention* latent = model.latent();
  if (latent == nullptr) return own;
  return {{own.counts.queries, 1}, latent->kv_rank + latent->rotated};
}

int64_t most_head_lanes(const Model& model, int tp) {
  const int64_t queries = head_counts(model, tp).queries;
  return model.has_states() ? std::min(queries, model.states()->value_heads / tp) : queries;
}

HeadPart head_part(const HeadCounts& heads, int lanes, int lane) {
  const int64_t group = heads.queries / heads.keys;
  const base::Interval queries = base::even_part(heads.queries, lanes, lane);
  return {queries, {queries.begin / group, (queries.end + group - 1) / group}};
}

HeadCounts most_heads(const HeadCounts& heads, int lanes) {
  HeadCounts most;
  for (int lane = 0; lane < lanes; ++lane) {
    const HeadPart part = head_part(heads, lanes, lane);
    most.queries = std::max(most.queries, part.queries.size());
    most.keys = std::max(most.keys, part.keys.size());
  }
  return most;
}

std::vector<HeadPart> uniform_runs(const HeadCounts& heads, const HeadPart& part) {
  const int64_t group = heads.queries / heads.keys;
  std::vector<HeadPart> runs;
  int64_t query = 0;
  for (int64_t key = part.keys.begin; key < part.keys.end; ++key) {
    const int64_t served = base::intersect({key * group, (key + 1) * group}, part.queries).size();
    const int64_t own_key = key - part.keys.begin;
    if (runs.empty() || runs.back().queries.size() != served * runs.back().keys.size()) {
      runs.push_back({{query, query}, {own_key, own_key}});
    }
    runs.back().queries.end = query += served;
    runs.back().keys.end = own_key + 1;
  }
  return runs;
}

}  // namespace sluice::model
