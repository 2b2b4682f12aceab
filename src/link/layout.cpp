#include "link/layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "model/program.h"
#include "strategy/wire_codec.h"

namespace sluice::link {
namespace {

using base::text;

void require_cuttable(const model::ParameterTable& table, const strategy::Scheme& scheme) {
  std::string fault = model::cut_fault(table.model, scheme.tp, scheme.pp, scheme.ep);
  if (const int64_t blocks = table.program.run_blocks(); fault.empty() && scheme.pp > blocks)
    fault = text(scheme.pp, " stages but the trunk has ", blocks, " layers: lower pp");
  if (fault.empty()) return;
  throw base::InputError(
      text("scheme ", to_text(scheme), " cannot cut the model: ", fault, " in parallel.strategies"));
}

std::string placement_fault(const model::ParameterTable& table, const strategy::ExpertPlacement& placement) {
  const int64_t layers = table.model.layers();
  if (std::ssize(placement.layers) != layers)
    return text("its experts are placed in ", placement.layers.size(), " layers of ", layers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::vector<int>& seats = placement.layers[static_cast<size_t>(layer)];
    const int64_t placed = seats.empty() ? 0 : std::ranges::max(seats) + 1;
    const int64_t experts = table.model.has_experts(layer) ? table.model.experts().count : 0;
    if (placed != experts) return text("layer ", layer, " places ", placed, " experts and has ", experts);
  }
  return "";
}

void require_placeable(const model::ParameterTable& table, const strategy::Pipeline& pipeline) {
  if (!pipeline.placement) return;
  const std::string fault = placement_fault(table, *pipeline.placement);
  if (fault.empty()) return;
  throw base::InputError(
      text("a pipeline ", to_text(pipeline.scheme), ": ", fault, ": make its plan again for this model"));
}

// Resident shards by everything that decides them; all operations of a kind are cut alike. The key is (kind,
// trained, of experts, coded, tp, t, expert lanes, expert lane, placed experts, parts, part).
class ShardCache {
 public:
  const base::IntervalSet& shard(const model::Bucket& bucket, const strategy::Pipeline& pipeline, int lane,
                                 int t) {
    const auto [cut, parts, part] = residence_of(bucket, pipeline, lane, t);
    const auto [found, added] =
        shards_.try_emplace({bucket.kind, bucket.trained, bucket.of_experts, bucket.coded, cut.tp, cut.t,
                             cut.expert_lanes, cut.expert_lane, cut.own_experts.data(), parts, part});
    if (added) {
      const base::IntervalSet whole = model::shard_of(bucket, cut);
      found->second = whole.part(resident_part(whole.size(), parts, part));
    }
    return found->second;
  }

 private:
  std::map<std::tuple<int, bool, bool, bool, int, int, int, int, const int*, int, int>, base::IntervalSet>
      shards_;
};

}  // namespace

base::Interval resident_part(int64_t elements, int share, int place) {
  const int64_t each = (elements + share - 1) / share;
  return {std::min(elements, place * each), std::min(elements, (place + 1) * each)};
}

Residence residence_of(const model::Bucket& bucket, const strategy::Pipeline& pipeline, int lane, int t) {
  const strategy::Scheme& scheme = pipeline.scheme;
  const int place = lane - scheme.first_of_fsdp_group(lane);
  if (!bucket.of_experts) return {{scheme.tp, t}, scheme.fsdp, place};
  return {{.tp = scheme.tp,
           .t = t,
           .expert_lanes = scheme.ep,
           .expert_lane = place % scheme.ep,
           .own_experts = pipeline.experts_of(bucket.layer, lane)},
          scheme.expert_fsdp(),
          place / scheme.ep};
}

base::Interval owned_part(int64_t bucket_size, int ranks, int rank) {
  if (bucket_size < strategy::kLeastDifferences) return base::even_part(bucket_size, ranks, rank);
  const base::Interval groups = base::even_part(strategy::codec_groups(bucket_size), ranks, rank);
  return {groups.begin * strategy::kCodecGroup, std::min(bucket_size, groups.end * strategy::kCodecGroup)};
}

base::Interval OwnerLayout::owned(const model::Bucket& bucket, int rank) const {
  return owned_part(bucket.size, ranks, rank);
}

ComputeLayout::ComputeLayout(const model::ParameterTable& table, const strategy::Strategy& strategy,
                             int world_size)
    : holdings_(static_cast<size_t>(world_size)) {
  strategy::validate(strategy, world_size);
  ShardCache cache;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    require_cuttable(table, scheme);
    require_placeable(table, pipeline);
    for (int stage = 0; stage < scheme.pp; ++stage) {
      for (const int index : table.program.buckets_of(table.program.of_stage(scheme.tp, scheme.pp, stage))) {
        const model::Bucket& bucket = table.buckets[static_cast<size_t>(index)];
        for (int lane = 0; lane < scheme.cp; ++lane) {
          for (int t = 0; t < scheme.tp; ++t) {
            const int rank = pipeline.rank_of(stage, lane, t);
            const base::IntervalSet& shard = cache.shard(bucket, pipeline, lane, t);
            const int64_t room = cache.shard(bucket, pipeline, scheme.first_of_fsdp_group(lane), t).size();
            holdings_[static_cast<size_t>(rank)].push_back({index, shard, room});
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
  return -1;
}

Rounds rounds(const model::ParameterTable& table, const strategy::Strategy& strategy) {
  const model::Program& program = table.program;
  int64_t count = 1;
  strategy::Scheme deepest;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    const strategy::Scheme& scheme = pipeline.scheme;
    if (scheme.pp > deepest.pp) deepest = scheme;
    const int64_t at_once = int64_t{scheme.tp} * scheme.fsdp;
    for (int stage = 0; stage < scheme.pp; ++stage) {
      const int64_t blocks = program.blocks_in(program.of_stage(scheme.tp, scheme.pp, stage)).size();
      count = std::max(count, (blocks + at_once - 1) / at_once);
    }
  }
  Rounds result;
  result.buckets.resize(static_cast<size_t>(count));
  const auto add = [&](int bucket, int64_t round) {
    result.buckets[static_cast<size_t>(round)].push_back(bucket);
  };
  const auto travels = [&](int64_t position, int64_t round) {
    const base::Interval own = program.at(position).own;
    for (int64_t bucket = own.begin; bucket < own.end; ++bucket) add(static_cast<int>(bucket), round);
  };
  const bool embeds = program.run().begin == program.embedding();
  if (embeds) travels(program.embedding(), 0);
  for (int stage = 0; stage < deepest.pp; ++stage) {
    const base::Interval own = program.blocks_in(program.of_stage(deepest.tp, deepest.pp, stage));
    for (int64_t round = 0; round < count; ++round) {
      const base::Interval part = base::even_part(own.size(), count, round);
      for (int64_t at = own.begin + part.begin; at < own.begin + part.end; ++at) travels(at, round);
    }
  }
  if (program.run().end > program.head()) {
    // A head that is tied to the embedding of another trunk reads its bucket.
    for (const int bucket : program.at(program.head()).buckets) {
      const bool own = program.buckets()[static_cast<size_t>(bucket)].position == program.head();
      if (own || !embeds) add(bucket, count - 1);
    }
  }
  for (std::vector<int>& round : result.buckets) std::ranges::sort(round);
  std::erase_if(result.buckets, [](const std::vector<int>& round) { return round.empty(); });
  return result;
}

}  // namespace sluice::link
