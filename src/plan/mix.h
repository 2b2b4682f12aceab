// Mixes: how many pipelines of each scheme. What a strategy is when nobody has told the ranks yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/feasible.h"
#include "cost/cost_model.h"
#include "plan/scheme_cost.h"
#include "strategy/strategy.h"

namespace sluice::plan {

// Pipelines by scheme, an index into the schemes that are proposed from.
using Mix = std::vector<int>;

// Every scheme that the calibration knows, that cuts the model and that holds some sequence on `world_size`
// ranks, in powers of two: TP within a node, at most `max_cp` lanes. The largest first, of equals the one
// with more TP, so that a strategy in this order consists of aligned blocks of ranks.
std::vector<SchemeCost> usable_schemes(const cost::CostModel& cost, int world_size, int max_cp);

// What the search for strategies looks at.
struct SchemeLimits {
  int max_cp = 1;             // lanes of a pipeline
  int max_fsdp = 1;           // lanes that share parameters
  int64_t tokens_a_rank = 0;  // of a step
};

// How many lanes pipelines of a scheme have that are searched.
std::vector<int> lanes_to_search(const strategy::Scheme& one_lane, int world_size,
                                 const strategy::Topology& topology, int max_cp);

// The same with lanes that share parameters, and fewer of many lanes: beyond a node only the widest three,
// because a wide pipeline plans whatever two of half its lanes plan; several stages have lanes of one node.
// Lanes share where a lane alone does not hold its part of a step, a quarter on top: with as few as then hold
// it, with all of a node, and where these do not hold it with as many more as do. On several stages they
// share nothing, because stages divide parameters without gathering them.
std::vector<SchemeCost> schemes_to_search(const cost::CostModel& cost, int world_size,
                                          const SchemeLimits& limits);

// Why none of the `schemes` that are usable on `world_size` ranks holds `context_length` tokens; nothing when
// one does.
std::optional<base::Infeasible> no_scheme_fits(int64_t context_length, std::span<const SchemeCost> schemes,
                                               int world_size);

int ranks_of(const Mix& mix, std::span<const SchemeCost> schemes);
// Fills the ranks that are left with the largest pipelines that the mix has, then with any.
void fill(Mix& mix, std::span<const SchemeCost> schemes, int ranks);
// The longest sequence that one of its pipelines holds; 0 without any.
int64_t max_len_tokens(const Mix& mix, std::span<const SchemeCost> schemes);
// Ranks are assigned from 0 in the order of the schemes. REQUIRES: some pipeline, ranks within world_size.
strategy::Strategy strategy_of(const Mix& mix, std::span<const SchemeCost> schemes, int world_size);

}  // namespace sluice::plan
