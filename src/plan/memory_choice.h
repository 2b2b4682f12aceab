// Which memory policy lets a long sequence fit at the least time: a share of the layers recomputed, a share
// of kept rows offloaded, or both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::plan {

// Which shares of a policy may grow; the others stay as they are.
struct Savings {
  bool recompute = false;
  bool offload = false;
  bool any() const { return recompute || offload; }
  auto operator<=>(const Savings&) const = default;
};

struct MemoryChoice {
  strategy::MemoryPolicy policy;
  strategy::Scheme scheme;  // that holds the sequence under it
  // Of the sequence on all lanes of the scheme, copies that no computing hides included.
  int64_t estimated_ns = 0;
};

// Of the policies that save no less than the cost model's, the one under which one of the schemes holds a
// sequence of `length` tokens and ends it first; of equals the one that saves less. Shares are twentieths.
// Nothing where none holds it.
std::optional<MemoryChoice> choose_memory(const cost::CostModel& cost,
                                          std::span<const strategy::Scheme> schemes, int world_size,
                                          int64_t length, const Savings& savings);

// The longest sequence that any of the schemes holds under any of these policies.
int64_t longest_held(const cost::CostModel& cost, std::span<const strategy::Scheme> schemes, int world_size,
                     const Savings& savings);

// Schemes that plan::propose may come to where memory is short: lanes as schemes_to_search has them, sharing
// nothing, within nodes, or as widely as they are, with experts gathered or divided.
std::vector<strategy::Scheme> roomy_schemes(const cost::CostModel& cost, int world_size, int max_cp,
                                            int max_share);

// The schemes of strategies' pipelines, each once.
std::vector<strategy::Scheme> schemes_of(std::span<const strategy::Strategy> strategies);

}  // namespace sluice::plan
