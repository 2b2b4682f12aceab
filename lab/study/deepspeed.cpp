#include "study/deepspeed.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "published/flex_sp.h"
#include "published/lane_groups.h"
#include "study/fixed_layout.h"
#include "study/rival_traits.h"

namespace sluice::study {
namespace {

using published::GroupProgram;
using strategy::Exchange;

// A program with one way of sharding on this machine.
struct Variant {
  Sharding sharding = Sharding::kZero3;
  bool recompute = false;
  cost::CostModel cost;
  GroupProgram program;
};

Variant variant_of(const SystemInputs& inputs, Sharding sharding, bool recompute, Exchange exchange,
                   const strategy::Scheme& degrees = {}) {
  cost::CostModel cost = sharded_cost(inputs.cost, sharding, recompute, inputs.world_size);
  GroupProgram program = sharded_program(sharding, degrees, exchange, cost, inputs.world_size);
  return {sharding, recompute, std::move(cost), program};
}

std::vector<Variant> ulysses_variants(const SystemInputs& inputs) {
  std::vector<Variant> variants;
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    for (const bool recompute : {false, true})
      variants.push_back(variant_of(inputs, sharding, recompute, Exchange::kHeads));
  }
  return variants;
}

// The ranks of DeepSpeed divide experts under all ZeRO stages but the third, which gathers them.
std::vector<Variant> deepspeed_variants(const SystemInputs& inputs) {
  std::vector<Variant> variants = ulysses_variants(inputs);
  for (const int experts : expert_degrees(inputs.cost.options().model, inputs.world_size)) {
    if (experts == 1) continue;
    for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2}) {
      for (const bool recompute : {false, true})
        variants.push_back(variant_of(inputs, sharding, recompute, Exchange::kHeads, {.ep = experts}));
    }
  }
  return variants;
}

std::vector<Variant> torchtitan_variants(const SystemInputs& inputs) {
  std::vector<Variant> variants;
  for (const strategy::Scheme& scheme : inputs.cost.schemes(inputs.world_size)) {
    const int tp = scheme.tp;
    if (scheme.pp > 1 || tp > inputs.cost.options().topology.node_ranks() || inputs.world_size % tp != 0)
      continue;
    for (const int experts : expert_degrees(inputs.cost.options().model, inputs.world_size / tp)) {
      const strategy::Scheme degrees{.tp = tp, .ep = experts};
      for (const Sharding sharding : {Sharding::kZero3, Sharding::kHsdp}) {
        for (const bool recompute : {false, true})
          variants.push_back(variant_of(inputs, sharding, recompute, Exchange::kRing, degrees));
        variants.push_back(variant_of(inputs, sharding, false, Exchange::kRing, degrees));
        variants.back().program.memory.recompute_permille = strategy::MemoryPolicy::kAll;
      }
    }
  }
  return variants;
}

std::string recompute_text(const Variant& variant) {
  if (variant.recompute) return " + AC";
  return variant.program.memory.recomputes() ? " + selective AC" : "";
}

SystemStep step_of(const Variant& variant, strategy::StepPlan plan) {
  const int64_t gather_ns = gather_once_ns(variant.sharding, variant.program, variant.cost);
  return {.plan = std::move(plan), .before_ns = gather_ns, .switch_ns = gather_ns};
}

std::unique_ptr<System> system_of(const Variant& variant, const published::StaticGroups& choice,
                                  const char* width_name, const std::string& sharding) {
  const strategy::Scheme& scheme = variant.program.scheme;
  std::vector<std::string> degrees;
  const auto add = [&](const char* name, int degree) {
    if (degree > 1) degrees.push_back(base::text(name, degree));
  };
  add("DP", scheme.cp / choice.group_lanes);
  add("TP", scheme.tp);
  degrees.push_back(base::text(width_name, choice.group_lanes));
  add("EP", scheme.ep);
  return fixed_layout(base::text(base::join(degrees, " "), recompute_text(variant), ", ", sharding),
                      variant.cost,
                      [variant, choice, ranks = scheme.ranks()](const std::vector<int64_t>& lengths,
                                                                const cost::CostModel& cost) {
                        return step_of(variant, published::static_groups_plan(choice, lengths, cost, ranks));
                      });
}

struct Found {
  const Variant* variant;
  published::StaticGroups choice;
};

std::optional<Found> best_of(const std::vector<Variant>& variants, const SystemInputs& inputs) {
  const std::vector<std::vector<int64_t>> batches = some_batches(inputs);
  std::optional<Found> best;
  for (const Variant& variant : variants) {
    std::optional<published::StaticGroups> choice = published::best_static_groups(
        variant.program, inputs.context_length, batches, variant.cost, inputs.world_size);
    if (!choice) continue;
    choice->mean_ns += gather_once_ns(variant.sharding, variant.program, variant.cost);
    if (!best || choice->mean_ns < best->choice.mean_ns) best = {&variant, *choice};
  }
  return best;
}

[[noreturn]] void fail(const SystemInputs& inputs, const std::string& what) {
  throw base::InfeasibleError(base::text(what, " on ", inputs.world_size, " ranks holds context_length ",
                                         inputs.context_length, ", with ZeRO-3 and recompute: shorten it"));
}

}  // namespace

std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs) {
  const std::vector<Variant> variants = deepspeed_variants(inputs);
  const std::optional<Found> best = best_of(variants, inputs);
  if (!best) fail(inputs, "no Ulysses group");
  return system_of(*best->variant, best->choice, "SP", name_of(best->variant->sharding));
}

std::unique_ptr<System> make_fsdp(const SystemInputs& inputs) {
  const std::vector<Variant> variants = torchtitan_variants(inputs);
  const std::optional<Found> best = best_of(variants, inputs);
  if (!best) fail(inputs, "no group of context-parallel ranks");
  return system_of(*best->variant, best->choice, "CP",
                   best->variant->sharding == Sharding::kHsdp ? "HSDP" : "FSDP");
}

std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs, int group_ranks, bool recompute,
                                       int64_t pack_tokens) {
  for (const Variant& variant : ulysses_variants(inputs)) {
    if (variant.recompute != recompute) continue;
    const int64_t held =
        published::capacity_tokens(variant.program, group_ranks, variant.cost, inputs.world_size);
    if (published::tokens_on_lane(inputs.context_length, group_ranks) > held) continue;
    const published::StaticGroups choice{.program = variant.program,
                                         .group_lanes = group_ranks,
                                         .micro_batch_tokens = pack_tokens / group_ranks};
    return system_of(variant, choice, "SP", name_of(variant.sharding));
  }
  throw base::InfeasibleError(base::text("Ulysses groups of ", group_ranks,
                                         " ranks do not hold context_length ", inputs.context_length,
                                         ": take larger ones"));
}

std::unique_ptr<System> make_flexsp(const SystemInputs& inputs) { return make_flexsp(inputs, nullptr); }

std::unique_ptr<System> make_flexsp(const SystemInputs& inputs, published::ImproveGroups improve) {
  const std::vector<std::vector<int64_t>> batches = some_batches(inputs);
  std::optional<Variant> best;
  int64_t least_ns = 0;
  for (const Variant& variant : ulysses_variants(inputs)) {
    const published::FlexSpCost groups(variant.program, variant.cost, inputs.world_size);
    if (groups.longest() < inputs.context_length) continue;
    int64_t total_ns = 0;
    for (const std::vector<int64_t>& batch : batches) {
      const SystemStep step =
          step_of(variant, published::flex_sp_plan(variant.program, batch, variant.cost, inputs.world_size));
      total_ns += step.before_ns + step.plan.estimated_ns;
    }
    if (best && total_ns >= least_ns) continue;
    best = variant;
    least_ns = total_ns;
  }
  if (!best) fail(inputs, "no Ulysses group");
  const int largest = published::most_group_lanes(best->program, best->cost, inputs.world_size);
  return fixed_layout(
      base::text("groups of up to ", largest, recompute_text(*best), ", ", name_of(best->sharding)),
      best->cost,
      [variant = *best, ranks = inputs.world_size, improve = std::move(improve)](
          const std::vector<int64_t>& lengths, const cost::CostModel& cost) {
        return step_of(variant, published::flex_sp_plan(variant.program, lengths, cost, ranks, improve));
      });
}

}  // namespace sluice::study
