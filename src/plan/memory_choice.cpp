#include "plan/memory_choice.h"

#include <algorithm>
#include <utility>

#include "cost/memory_cost.h"
#include "plan/mix.h"
#include "plan/scheme_cost.h"

namespace sluice::plan {

namespace {

using strategy::MemoryPolicy;
using strategy::Scheme;

constexpr int kStepPermille = 50;
constexpr int kCoarsePermille = 250;  // step of recomputed layers until a scheme is chosen

// The time of copies of a stage's layers to or from the host that computing does not hide.
int64_t shown_copies_ns(const cost::CostModel& cost, const Scheme& scheme, int64_t length) {
  if (cost.policy().offload_permille == 0) return 0;
  const cost::Work work = SchemeCost::fullest_share(length, scheme.cp, cost.window());
  const cost::MemoryCost memory(cost, scheme);
  const base::Interval run = cost.stage_run(scheme, scheme.pp - 1);
  const base::Interval blocks = cost.program().blocks_in(cost.program().walked_back(run));
  int64_t copies_ns = 0;
  for (int64_t block = blocks.begin; block + cost::kLayersThatStay < blocks.end; ++block)
    copies_ns += cost.options().host.of_bytes(memory.offloaded_bytes(block, work.tokens));
  int64_t shown_ns = 0;
  for (const cost::CellKind kind : {cost::CellKind::kForward, cost::CellKind::kBackward})
    shown_ns += std::max<int64_t>(0, copies_ns - cost.cell_ns(scheme, kind, run, work));
  return shown_ns;
}

// A scheme under the policies that it may use.
class SavingScheme {
 public:
  SavingScheme(const cost::CostModel& cost, const Scheme& scheme, int world_size, int64_t length)
      : cost_(cost),
        scheme_(scheme),
        world_size_(world_size),
        length_(length),
        fixed_bytes_(cost::MemoryCost(cost, scheme).fixed_bytes(world_size)) {}

  // The longest sequence with so many layers recomputed and any share of rows offloaded.
  int64_t longest(int recompute_permille, const Savings& savings) const {
    MemoryPolicy policy = cost_.policy();
    policy.recompute_permille = recompute_permille;
    int64_t most = longest_under(policy);
    while (savings.offload && policy.offload_permille < MemoryPolicy::kAll) {
      policy.offload_permille = std::min(MemoryPolicy::kAll, policy.offload_permille + kStepPermille);
      most = std::max(most, longest_under(policy));
    }
    return most;
  }

  // The least share of rows under which the sequence fits, with so many layers recomputed.
  std::optional<MemoryPolicy> least_offload(int recompute_permille, const Savings& savings) const {
    MemoryPolicy policy = cost_.policy();
    policy.recompute_permille = recompute_permille;
    for (;; policy.offload_permille = std::min(MemoryPolicy::kAll, policy.offload_permille + kStepPermille)) {
      if (longest_under(policy) >= length_) return policy;
      if (!savings.offload || policy.offload_permille == MemoryPolicy::kAll) return std::nullopt;
    }
  }

  int64_t estimated_ns(const MemoryPolicy& policy) const {
    const cost::CostModel under = cost_.under(policy);
    const SchemeCost known(scheme_, under, world_size_);
    const int64_t gathers_ns = scheme_.fsdp > 1 ? known.gathers_ns(known.share_of(length_, scheme_.cp)) : 0;
    return known.on(scheme_.cp).path_ns(length_) + gathers_ns + shown_copies_ns(under, scheme_, length_);
  }

  // Tries shares of recomputed layers from the cost model's own on, in steps of `step_permille`.
  void improve(const Savings& savings, int step_permille, std::optional<MemoryChoice>& best) const {
    const int least = cost_.policy().recompute_permille;
    for (int permille = least;; permille = std::min(MemoryPolicy::kAll, permille + step_permille)) {
      const auto policy = least_offload(permille, savings);
      if (policy) {
        const int64_t ns = estimated_ns(*policy);
        if (!best || ns < best->estimated_ns) best = {*policy, scheme_, ns};
      }
      // Recomputing more layers would not reduce copies.
      const bool least_copies = policy && policy->offload_permille == cost_.policy().offload_permille;
      if (least_copies || !savings.recompute || permille == MemoryPolicy::kAll) return;
    }
  }

 private:
  int64_t longest_under(const MemoryPolicy& policy) const {
    const cost::MemoryCost memory(cost_.under(policy), scheme_);
    return longest_on(scheme_.cp, memory.max_len_beside(fixed_bytes_));
  }

  const cost::CostModel& cost_;
  Scheme scheme_;
  int world_size_;
  int64_t length_;
  int64_t fixed_bytes_;
};

int most_recomputed(const cost::CostModel& cost, const Savings& savings) {
  return savings.recompute ? MemoryPolicy::kAll : cost.policy().recompute_permille;
}

}  // namespace

std::optional<MemoryChoice> choose_memory(const cost::CostModel& cost,
                                          std::span<const strategy::Scheme> schemes, int world_size,
                                          int64_t length, const Savings& savings) {
  std::optional<MemoryChoice> best;
  for (const Scheme& scheme : schemes) {
    const SavingScheme saving(cost, scheme, world_size, length);
    const bool may_hold = saving.least_offload(most_recomputed(cost, savings), savings) ||
                          saving.least_offload(cost.policy().recompute_permille, savings);
    if (may_hold) saving.improve(savings, kCoarsePermille, best);
  }
  if (best && savings.recompute)
    SavingScheme(cost, best->scheme, world_size, length).improve(savings, kStepPermille, best);
  return best;
}

int64_t longest_held(const cost::CostModel& cost, std::span<const Scheme> schemes, int world_size,
                     const Savings& savings) {
  int64_t longest = 0;
  for (const Scheme& scheme : schemes) {
    const SavingScheme saving(cost, scheme, world_size, 0);
    for (const int permille : {cost.policy().recompute_permille, most_recomputed(cost, savings)})
      longest = std::max(longest, saving.longest(permille, savings));
  }
  return longest;
}

std::vector<Scheme> roomy_schemes(const cost::CostModel& cost, int world_size, int max_cp, int max_share) {
  std::vector<Scheme> schemes;
  for (const Scheme& one_lane : cost.schemes(world_size)) {
    const int node = cost.options().topology.lanes_of_node(one_lane.tp);
    for (const int lanes : lanes_to_search(one_lane, world_size, cost.options().topology, max_cp)) {
      Scheme scheme = one_lane;
      scheme.cp = lanes;
      schemes.push_back(scheme);
      if (scheme.pp > 1) continue;
      for (scheme.fsdp = std::min(node, lanes); scheme.fsdp > 1 && scheme.fsdp <= std::min(lanes, max_share);
           scheme.fsdp *= 2) {
        if (lanes % scheme.fsdp != 0) continue;
        scheme.ep = 1;
        schemes.push_back(scheme);
        scheme.ep = scheme.fsdp;
        if (model::experts_fault(cost.options().model, scheme.ep).empty()) schemes.push_back(scheme);
      }
    }
  }
  return schemes;
}

std::vector<Scheme> schemes_of(std::span<const strategy::Strategy> strategies) {
  std::vector<Scheme> schemes;
  for (const strategy::Strategy& strategy : strategies) {
    for (const strategy::Pipeline& pipeline : strategy.pipelines) schemes.push_back(pipeline.scheme);
  }
  std::ranges::sort(schemes);
  const auto repeated = std::ranges::unique(schemes);
  schemes.erase(repeated.begin(), repeated.end());
  return schemes;
}

}  // namespace sluice::plan
