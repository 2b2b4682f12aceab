// Planning for ranks of which some are slow: they get less work, in proportion to what they can do.
#pragma once

#include <span>
#include <vector>

#include "plan/planner.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Strategies beside the candidates in which few other ranks run at a slow rank's pace: all ranks alone; where
// lanes are among the candidates the other ranks as one pipeline of lanes; and each candidate with its slow
// ranks apart. Slow ranks of one TP rank that share nothing are alone, and the last pipelines are made
// smaller. With tensor parallelism or shared parameters (FSDP) the lanes of a slow rank's share group become
// a pipeline of their own, or all of their ranks are alone. None needs a communicator that the candidates do
// not need: TP groups and share groups stay whole. `slowdown_percent`: by world rank, 100 as priced.
std::vector<strategy::Strategy> strategies_around(std::span<const int> pace_percent,
                                                  const std::vector<strategy::Strategy>& candidates);

// The planner for the same work on ranks of these paces: its candidates at them, and strategies_around where
// it chooses the best. A cell takes as long as on the slowest of its ranks (Malleus, Li et al., 2024, cuts
// work so).
plan::Planner planner_with_slowdowns(const plan::Planner& planner, std::span<const int> pace_percent);

}  // namespace sluice::session
