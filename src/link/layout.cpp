#include "link/layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace sluice::link {
namespace {

using base::text;

void require_cuttable(const model::Shape& shape, const strategy::Scheme& scheme) {
  const std::string fault = model::tp_fault(shape, scheme.tp);
  if (!fault.empty()) {
    throw base::InputError(text("scheme ", to_text(scheme), " cannot cut the model: ", fault,
                                ": choose another tp in parallel.strategies"));
  }
  if (scheme.pp > shape.layers) {
    throw base::InputError(text("scheme ", to_text(scheme), " has ", scheme.pp, " stages but the model has ",
                                shape.layers, " layers: lower pp in parallel.strategies"));
  }
}

// The buckets of a stage, ascending.
std::vector<int> buckets_of_stage(const model::ParameterTable& table, int pp, int stage) {
  const bool first = stage == 0;
  const bool last = stage == pp - 1;
  std::vector<int> buckets;
  if (first || (last && table.shape.tie_embeddings)) buckets.push_back(table.embedding().index);
  const base::Interval layers = strategy::layers_of_stage(table.shape.layers, pp, stage);
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    buckets.push_back(table.layer(layer).index);
  }
  if (last) buckets.push_back(table.head().index);
  return buckets;
}

// Shards by (bucket kind, tp, t): all layers are cut alike.
class ShardCache {
 public:
  const base::IntervalSet& shard(const model::Bucket& bucket, int tp, int t) {
    const auto [found, added] = shards_.try_emplace({bucket.kind, tp, t});
    if (added) found->second = model::tp_shard(bucket, tp, t);
    return found->second;
  }

 private:
  std::map<std::tuple<model::BucketKind, int, int>, base::IntervalSet> shards_;
};

int64_t rounds_of_stage(const base::Interval& layers, int tp) { return (layers.size() + tp - 1) / tp; }

}  // namespace

base::Interval OwnerLayout::owned(const model::Bucket& bucket, int rank) const {
  return base::even_part(bucket.size, ranks, rank);
}

ComputeLayout::ComputeLayout(const model::ParameterTable& table, const strategy::Strategy& strategy,
                             int world_size)
    : holdings_(static_cast<size_t>(world_size)) {
  strategy::validate(strategy, world_size);
  ShardCache cache;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    require_cuttable(table.shape, scheme);
    for (int stage = 0; stage < scheme.pp; ++stage) {
      for (const int index : buckets_of_stage(table, scheme.pp, stage)) {
        const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
        for (int lane = 0; lane < scheme.cp; ++lane) {
          for (int t = 0; t < scheme.tp; ++t) {
            const int rank = pipeline.rank_of(stage, lane, t);
            holdings_[static_cast<size_t>(rank)].push_back({index, cache.shard(bucket, scheme.tp, t)});
          }
        }
      }
    }
  }
}

const base::IntervalSet& ComputeLayout::shard(int bucket, int rank) const {
  static const base::IntervalSet kNothing;
  const std::vector<Holding>& held = holdings(rank);
  const auto found = std::lower_bound(held.begin(), held.end(), bucket,
                                      [](const Holding& have, int index) { return have.bucket < index; });
  return found != held.end() && found->bucket == bucket ? found->shard : kNothing;
}

std::vector<int> ComputeLayout::holders(int bucket) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size(); ++rank) {
    if (!shard(bucket, rank).empty()) ranks.push_back(rank);
  }
  return ranks;
}

int Rounds::round_of(int bucket) const {
  for (size_t round = 0; round < buckets.size(); ++round) {
    if (std::binary_search(buckets[round].begin(), buckets[round].end(), bucket)) {
      return static_cast<int>(round);
    }
  }
  SLUICE_ASSERT(false, text("bucket ", bucket, " is in no round"));
}

Rounds rounds(const model::ParameterTable& table, const strategy::Strategy& strategy) {
  const int64_t layers = table.shape.layers;
  int64_t count = 1;
  int stages = 1;
  for (const auto& [scheme, ranks] : strategy.pipelines) {
    stages = std::max(stages, scheme.pp);
    // Stage 0 has the most layers.
    count = std::max(count, rounds_of_stage(strategy::layers_of_stage(layers, scheme.pp, 0), scheme.tp));
  }
  Rounds result;
  result.buckets.resize(static_cast<size_t>(count));
  result.buckets.front().push_back(table.embedding().index);
  for (int stage = 0; stage < stages; ++stage) {
    const base::Interval own = strategy::layers_of_stage(layers, stages, stage);
    for (int64_t round = 0; round < count; ++round) {
      const base::Interval part = base::even_part(own.size(), count, round);
      for (int64_t layer = own.begin + part.begin; layer < own.begin + part.end; ++layer) {
        result.buckets[static_cast<size_t>(round)].push_back(table.layer(layer).index);
      }
    }
  }
  result.buckets.back().push_back(table.head().index);
  for (std::vector<int>& round : result.buckets) std::ranges::sort(round);
  std::erase_if(result.buckets, [](const std::vector<int>& round) { return round.empty(); });
  return result;
}

}  // namespace sluice::link
