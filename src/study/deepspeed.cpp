#include "study/deepspeed.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "published/static_strategy.h"
#include "schedule/pipeline_schedule.h"
#include "study/baseline_cost.h"
#include "study/fixed_layout.h"

namespace sluice::study {
namespace {

struct Configuration {
  UlyssesOptions ulysses;
  cost::CostModel cost;
  published::StaticStrategy choice;
  ZeroTimes zero;
  int64_t mean_ns = 0;
};

// Of both passes; none in a group of one.
int64_t all_to_all_ns(const schedule::TimedUnit& unit) {
  return unit.forward_ring_ns.empty() ? 0 : unit.forward_ring_ns[0] + unit.backward_ring_ns[0];
}

// What waiting for ZeRO's collectives, and for other groups at them, adds to the slowest group's own time.
int64_t waiting_ns(const strategy::StepPlan& plan, const Configuration& configuration) {
  if (configuration.ulysses.zero == ZeroStage::kOne) return 0;
  int64_t slowest_ns = 0;
  std::vector<int64_t> together_ns;  // by micro-batch
  for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
    int64_t own_ns = 0;
    const std::vector<schedule::TimedUnit> units = schedule::timed_units(pipeline, configuration.cost);
    together_ns.resize(std::max(together_ns.size(), units.size()), 0);
    for (size_t u = 0; u < units.size(); ++u) {
      const int64_t busy_ns = units[u].forward_ns[0] + units[u].backward_input_ns[0];
      const int64_t zero_ns = u == 0 ? configuration.zero.first_ns : configuration.zero.later_ns;
      together_ns[u] = std::max({together_ns[u], busy_ns, all_to_all_ns(units[u]) + zero_ns});
      own_ns += busy_ns;
    }
    slowest_ns = std::max(slowest_ns, own_ns);
  }
  return std::accumulate(together_ns.begin(), together_ns.end(), int64_t{0}) - slowest_ns;
}

SystemStep step_of(const Configuration& configuration, const std::vector<int64_t>& lengths) {
  SystemStep step{.plan = published::static_plan(configuration.choice, lengths, configuration.cost,
                                                 configuration.ulysses.world_size)};
  step.before_ns = waiting_ns(step.plan, configuration);
  return step;
}

// Nothing when no group holds the context.
std::optional<Configuration> best_with(const UlyssesOptions& ulysses, const SystemInputs& inputs) {
  cost::CostModel cost = ulysses_cost(inputs.cost, ulysses);
  try {
    const plan::ProposalOptions options{.world_size = inputs.world_size,
                                        .context_length = inputs.context_length,
                                        .sample_batches = inputs.sample_batches,
                                        .max_cp = most_ulysses_ranks(inputs.cost, inputs.world_size)};
    const published::StaticStrategy choice =
        published::best_static(options, cost, published::Dealing::kTurns);
    Configuration configuration{ulysses, std::move(cost), choice, zero_times(inputs.cost, ulysses)};
    for (const std::vector<int64_t>& batch : inputs.sample_batches) {
      const SystemStep step = step_of(configuration, batch);
      configuration.mean_ns += step.before_ns + step.plan.estimated_ns;
    }
    return configuration;
  } catch (const base::InfeasibleError&) {
    return std::nullopt;
  }
}

Configuration best_configuration(const SystemInputs& inputs) {
  std::optional<Configuration> best;
  for (const UlyssesOptions& ulysses : ulysses_choices(inputs.world_size)) {
    std::optional<Configuration> next = best_with(ulysses, inputs);
    if (next && (!best || next->mean_ns < best->mean_ns)) best = std::move(next);
  }
  if (!best) {
    throw base::InfeasibleError(base::text("no Ulysses group of up to ",
                                           most_ulysses_ranks(inputs.cost, inputs.world_size), " of ",
                                           inputs.world_size, " ranks holds context_length ",
                                           inputs.context_length, ", with ZeRO-3 and recompute: shorten it"));
  }
  return std::move(*best);
}

Configuration given_configuration(const SystemInputs& inputs, int group_ranks, bool recompute,
                                  int64_t pack_tokens) {
  const published::StaticStrategy choice{.scheme = {.cp = group_ranks},
                                         .pipelines = inputs.world_size / group_ranks,
                                         .micro_batch_tokens = pack_tokens / group_ranks,
                                         .dealing = published::Dealing::kTurns};
  for (const UlyssesOptions& ulysses : ulysses_choices(inputs.world_size)) {
    cost::CostModel cost = ulysses_cost(inputs.cost, ulysses);
    const int64_t held = cost.max_len_tokens({}, inputs.world_size) * group_ranks;
    if (ulysses.recompute != recompute || held < inputs.context_length) continue;
    return {ulysses, std::move(cost), choice, zero_times(inputs.cost, ulysses)};
  }
  throw base::InfeasibleError(base::text("Ulysses groups of ", group_ranks,
                                         " ranks do not hold context_length ", inputs.context_length,
                                         ": take larger ones"));
}

std::string to_text(const Configuration& configuration) {
  const published::StaticStrategy& choice = configuration.choice;
  const std::string dp = choice.pipelines > 1 ? base::text("DP", choice.pipelines, " ") : "";
  return base::text(dp, "SP", choice.scheme.cp, configuration.ulysses.recompute ? " + AC" : "", ", ZeRO-",
                    static_cast<int>(configuration.ulysses.zero));
}

std::unique_ptr<System> system_of(const Configuration& configuration) {
  return fixed_layout(to_text(configuration), configuration.cost,
                      [configuration](const std::vector<int64_t>& lengths, const cost::CostModel&) {
                        return step_of(configuration, lengths);
                      });
}

}  // namespace

std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs) {
  return system_of(best_configuration(inputs));
}

std::unique_ptr<System> make_deepspeed(const SystemInputs& inputs, int group_ranks, bool recompute,
                                       int64_t pack_tokens) {
  return system_of(given_configuration(inputs, group_ranks, recompute, pack_tokens));
}

}  // namespace sluice::study
