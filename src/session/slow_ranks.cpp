#include "session/slow_ranks.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace sluice::session {

using strategy::Pipeline;
using strategy::Scheme;
using strategy::Strategy;

namespace {

// Puts the next ranks into a pipeline like this one, with fewer lanes or stages if too few ranks are
// left.
void add_like(const Scheme& like, std::span<const int>& ranks, Strategy& strategy) {
  Scheme scheme = like;
  if (std::ssize(ranks) < scheme.ranks()) scheme.cp = static_cast<int>(ranks.size()) / scheme.pp;
  if (scheme.cp == 0) scheme = {};
  const auto taken = static_cast<size_t>(scheme.ranks());
  strategy.pipelines.push_back({scheme, {ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(taken)}});
  ranks = ranks.subspan(taken);
}

// The pipeline restricted to some of its lanes, ascending, by whole share groups. Its TP groups, share groups
// and expert groups are the pipeline's own.
Pipeline of_lanes(const Pipeline& pipeline, std::span<const int> lanes) {
  Pipeline part{pipeline.scheme, {}, pipeline.device};
  part.scheme.cp = static_cast<int>(lanes.size());
  for (int stage = 0; stage < pipeline.scheme.pp; ++stage) {
    for (const int lane : lanes) {
      const std::vector<int> group = pipeline.tp_group(stage, lane);
      part.ranks.insert(part.ranks.end(), group.begin(), group.end());
    }
  }
  return part;
}

// The treatment of share groups of lanes that have both slow and other ranks.
enum class MixedLanes : uint8_t {
  kStay,  // a pipeline of its own, which takes as long as its slowest rank; the rest is not slowed down
  kPart,  // single ranks: those that are not slow keep their speed, if each holds the whole model
};

// Adds the pipeline's lanes without slow ranks as one pipeline, and the others as `mixed` says.
void part_slow_lanes(const Pipeline& pipeline, std::span<const int> pace_percent, MixedLanes mixed,
                     Strategy& strategy) {
  const auto is_slow = [&](int rank) { return pace_percent[static_cast<size_t>(rank)] > 100; };
  std::vector<int> quick;
  std::vector<Pipeline> slow;
  for (int first = 0; first < pipeline.scheme.cp; first += pipeline.scheme.fsdp) {
    std::vector<int> lanes(static_cast<size_t>(pipeline.scheme.fsdp));
    std::iota(lanes.begin(), lanes.end(), first);
    Pipeline group = of_lanes(pipeline, lanes);
    if (std::ranges::any_of(group.ranks, is_slow)) {
      slow.push_back(std::move(group));
    } else {
      quick.insert(quick.end(), lanes.begin(), lanes.end());
    }
  }
  if (!quick.empty()) strategy.pipelines.push_back(of_lanes(pipeline, quick));
  for (Pipeline& group : slow) {
    if (mixed == MixedLanes::kStay) {
      strategy.pipelines.push_back(std::move(group));
      continue;
    }
    for (const int rank : group.ranks) strategy.pipelines.push_back({{}, {rank}, group.device});
  }
}

}  // namespace

std::vector<Strategy> strategies_around(std::span<const int> pace_percent,
                                        const std::vector<Strategy>& candidates) {
  std::vector<int> slow, others;
  for (int rank = 0; rank < std::ssize(pace_percent); ++rank)
    (pace_percent[static_cast<size_t>(rank)] > 100 ? slow : others).push_back(rank);
  if (slow.empty() || others.empty()) return {};
  std::vector<Strategy> found;
  const auto add_new = [&](Strategy strategy) {
    if (std::ranges::find(found, strategy) == found.end()) found.push_back(std::move(strategy));
  };
  const auto add = [&](Strategy strategy, std::span<const int> left) {
    while (!left.empty()) add_like({}, left, strategy);
    std::span<const int> alone = slow;
    while (!alone.empty()) add_like({}, alone, strategy);
    add_new(std::move(strategy));
  };
  add({}, others);
  bool any_lanes = false;
  for (const Strategy& candidate : candidates) {
    const auto is_plain = [](const Pipeline& pipeline) {
      return pipeline.scheme.tp == 1 && pipeline.scheme.fsdp == 1;
    };
    for (const Pipeline& pipeline : candidate.pipelines) any_lanes = any_lanes || pipeline.scheme.cp > 1;
    if (!std::ranges::all_of(candidate.pipelines, is_plain)) {
      for (const MixedLanes mixed : {MixedLanes::kStay, MixedLanes::kPart}) {
        Strategy strategy;
        for (const Pipeline& pipeline : candidate.pipelines)
          part_slow_lanes(pipeline, pace_percent, mixed, strategy);
        if (strategy != candidate) add_new(std::move(strategy));
      }
      continue;
    }
    Strategy strategy;
    std::span<const int> left = others;
    for (const Pipeline& pipeline : candidate.pipelines) {
      if (!left.empty()) add_like(pipeline.scheme, left, strategy);
    }
    add(std::move(strategy), left);
  }
  if (any_lanes) {
    std::span<const int> left = others;
    Strategy strategy;
    add_like({.cp = static_cast<int>(others.size())}, left, strategy);
    add(std::move(strategy), left);
  }
  return found;
}

CandidateDecorator slow_rank_candidates(std::span<const int> pace_percent) {
  return {[paces = std::vector(pace_percent.begin(), pace_percent.end())](plan::PlannerOptions& options) {
    std::vector<Strategy>& candidates = options.candidates;
    if (options.selection == plan::Selection::kBest) {
      for (Strategy& around : strategies_around(paces, candidates)) {
        if (std::ranges::find(candidates, around) == candidates.end())
          candidates.push_back(std::move(around));
      }
    }
    for (Strategy& candidate : candidates) candidate = strategy::with_slowdowns(std::move(candidate), paces);
  }};
}

}  // namespace sluice::session
