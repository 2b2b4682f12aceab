// Planning for ranks of which some are slow: they get less work, in proportion to what they can do.
#pragma once

#include <span>
#include <vector>

#include "plan/planner.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Strategies beside the candidates that leave a slow rank alone in its pipeline, so that none but it runs at
// its pace: all ranks alone; and where lanes are among the candidates the other ranks as one pipeline of
// lanes, and as each candidate has them, the last pipelines made smaller. They need no communicator that the
// candidates do not need: one TP rank, nothing shared. `pace_percent`: by world rank, 100 as priced.
std::vector<strategy::Strategy> strategies_around(std::span<const int> pace_percent,
                                                  const std::vector<strategy::Strategy>& candidates);

// The planner for the same work on ranks of these paces: its candidates at them, and strategies_around where
// it chooses the best. A cell takes as long as on the slowest of its ranks (Malleus, Li et al., 2024, cuts
// work so).
plan::Planner planner_at(const plan::Planner& planner, std::span<const int> pace_percent);

}  // namespace sluice::session
