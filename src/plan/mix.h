// Mixes: numbers of pipelines by scheme, which become strategies once ranks are assigned.
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

// Number of pipelines by scheme. The index is that of the scheme in the list that proposals choose from.
using Mix = std::vector<int>;

// Every scheme that the calibration knows, that cuts the model and that holds a sequence on
// `world_size` ranks. Degrees are powers of two, TP stays within a node, cp <= max_cp. Larger schemes
// come first, then those with more TP, so a strategy in this order consists of aligned blocks of ranks.
std::vector<SchemeCost> usable_schemes(const cost::CostModel& cost, int world_size, int max_cp);

// Limits of the search for strategies.
struct SchemeLimits {
  int max_cp = 1;             // lanes of a pipeline
  int max_fsdp = 1;           // lanes that share parameters
  int64_t tokens_a_rank = 0;  // tokens of a step, per rank
};

// The numbers of lanes that the search tries for pipelines of a scheme.
std::vector<int> lanes_to_search(const strategy::Scheme& one_lane, int world_size,
                                 const strategy::Topology& topology, int max_cp);

// Like usable_schemes, with FSDP degrees, and fewer numbers of lanes: beyond a node the three widest,
// because one wide pipeline can run whatever two of half its lanes run. With several stages lanes stay in
// one node. Lanes share parameters if one lane does not hold 1.25 times its part of a step. FSDP degrees
// are then the least that holds it and a node's lanes; if these do not hold it, also larger ones up to
// one that does. With several stages lanes share nothing: stages divide parameters without gathers.
std::vector<SchemeCost> schemes_to_search(const cost::CostModel& cost, int world_size,
                                          const SchemeLimits& limits);

// Why none of the `schemes` that are usable on `world_size` ranks holds `context_length` tokens; nothing when
// one does.
std::optional<base::Infeasible> no_scheme_fits(int64_t context_length, std::span<const SchemeCost> schemes,
                                               int world_size);

int ranks_of(const Mix& mix, std::span<const SchemeCost> schemes);
// Fills the ranks that are left: with the largest pipelines that the mix has, then with any scheme's.
void fill(Mix& mix, std::span<const SchemeCost> schemes, int ranks);
// The longest sequence that one of the mix's pipelines holds; 0 without any.
int64_t max_len_tokens(const Mix& mix, std::span<const SchemeCost> schemes);
// Ranks are assigned from 0 in the order of the schemes. REQUIRES: a pipeline; ranks within world_size.
strategy::Strategy strategy_of(const Mix& mix, std::span<const SchemeCost> schemes, int world_size);

}  // namespace sluice::plan
