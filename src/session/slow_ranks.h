// Planning with slow ranks: they get less work, in proportion to their speed.
#pragma once

#include <span>
#include <vector>

#include "session/decorators.h"
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

// Candidates on ranks with these slowdowns. strategies_around are added where a planner chooses the best
// candidate. A cell takes as long as on the slowest of its ranks (Malleus, Li et al., 2024, divides work in
// this way).
CandidateDecorator slow_rank_candidates(std::span<const int> pace_percent);

}  // namespace sluice::session
