// Planning with slow ranks: they get less work, in proportion to their speed.
#pragma once

#include <span>
#include <vector>

#include "plan/planner.h"
#include "strategy/strategy.h"

namespace sluice::session {

// Strategies beside the candidates in which few other ranks wait for a slow rank. First all ranks alone; if
// candidates have lanes, the other ranks as one pipeline of lanes; and each candidate with its slow ranks
// apart. Without TP and FSDP slow ranks are alone, and the last pipelines become smaller. With TP or FSDP the
// lanes of a slow rank's share group become a pipeline of their own, or all of their ranks are alone. No new
// communicators are needed: TP groups and share groups stay whole. `pace_percent`: by world rank, 100 as
// priced.
std::vector<strategy::Strategy> strategies_around(std::span<const int> pace_percent,
                                                  const std::vector<strategy::Strategy>& candidates);

// The planner for the same work on ranks with these slowdowns. If it chooses the best candidate,
// strategies_around are added to its candidates. A cell takes as long as on the slowest of its ranks
// (Malleus, Li et al., 2024, divides work in this way).
plan::Planner planner_with_slowdowns(const plan::Planner& planner, std::span<const int> pace_percent);

}  // namespace sluice::session
