// Chooses the memory policy under which a long sequence fits at the least time:
// a share of the layers recomputed, a share of kept rows offloaded, or both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "strategy/strategy.h"

namespace sluice::plan {

// The shares of a policy that may grow; the others stay as they are.
struct Savings {
  bool recompute = false;
  bool offload = false;
  bool any() const { return recompute || offload; }
  auto operator<=>(const Savings&) const = default;
};

struct MemoryChoice {
  strategy::MemoryPolicy policy;
  strategy::Scheme scheme;  // holds the sequence under `policy`
  // The sequence's time on all lanes of the scheme, with the copies that computing does not hide.
  int64_t estimated_ns = 0;
};

// Chooses among policies that save at least as much as the cost model's. One of the schemes must
// hold a sequence of `length` tokens. The policy with the earliest end wins; ties go to the one that
// saves less. Shares are multiples of a twentieth. Nothing if the sequence fits under no policy.
std::optional<MemoryChoice> choose_memory(const cost::CostModel& cost,
                                          std::span<const strategy::Scheme> schemes, int world_size,
                                          int64_t length, const Savings& savings);

// The longest sequence that any of the schemes holds under any of these policies.
int64_t longest_held(const cost::CostModel& cost, std::span<const strategy::Scheme> schemes, int world_size,
                     const Savings& savings);

// Schemes that plan::propose may choose where memory is short. Lanes are those of lanes_to_search; the
// FSDP degree is 1 or a node's lanes times a power of two; experts are gathered or divided by all lanes.
std::vector<strategy::Scheme> roomy_schemes(const cost::CostModel& cost, int world_size, int max_cp,
                                            int max_share);

// The schemes of strategies' pipelines, each once.
std::vector<strategy::Scheme> schemes_of(std::span<const strategy::Strategy> strategies);

}  // namespace sluice::plan
