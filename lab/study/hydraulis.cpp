#include "study/hydraulis.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cost/memory_cost.h"
#include "cost/table_figures.h"
#include "plan/planner.h"
#include "published/paper_plan.h"
#include "published/paper_propose.h"
#include "study/rival_traits.h"

namespace sluice::study {
namespace {

constexpr int kMostStrategies = 8;
constexpr int64_t kPackNodes = 20'000;  // for each number of micro-batches; published: half a second

plan::PlannerOptions planner_options(const SystemInputs& inputs, published::TieRule ties,
                                     published::PaperPackRule packing,
                                     published::ConstantRule constants = published::ConstantRule::kReleased) {
  return {.world_size = inputs.world_size,
          .candidates = {},
          .method = published::paper(
              {.dispatch = {.seed = inputs.seed, .tie_rule = ties, .constants = constants},
               .pack = {.rule = packing, .constants = constants, .node_budget = kPackNodes}})};
}

// A system whose planner uses the published algorithms.
class Hydraulis : public System {
 public:
  explicit Hydraulis(plan::Planner planner) : planner_(std::move(planner)) {}

  std::string configuration() const override {
    const auto& candidates = planner_.options().candidates;
    if (candidates.size() == 1) return to_text(candidates.front());
    return base::text(candidates.size(), " strategies");
  }
  const cost::CostModel& cost() const override { return planner_.cost(); }
  SystemStep step(int64_t step, const std::vector<strategy::Sequence>& sequences) override {
    return {.plan = planner_.plan(step, sequences)};
  }

 private:
  plan::Planner planner_;
};

std::vector<strategy::Strategy> published_strategies(const SystemInputs& inputs,
                                                     const cost::CostModel& cost) {
  return plan::strategies_of(published::paper_propose({.world_size = inputs.world_size,
                                                       .context_length = inputs.context_length,
                                                       .sample_batches = inputs.sample_batches,
                                                       .max_strategies = kMostStrategies},
                                                      cost)
                                 .or_throw());
}

// Strategies of one scheme on all ranks, for each published scheme that holds the context.
std::vector<strategy::Strategy> homogeneous_strategies(const SystemInputs& inputs,
                                                       const cost::CostModel& cost) {
  std::vector<strategy::Strategy> strategies;
  for (const plan::SchemeCost& scheme : plan::usable_schemes(cost, inputs.world_size, 1)) {
    if (scheme.max_len_tokens() < inputs.context_length || cost::is_derived(cost, scheme.scheme())) continue;
    const int pipelines = inputs.world_size / scheme.scheme().ranks();
    strategies.push_back(
        strategy::parse_strategy(base::text(pipelines, "x", to_text(scheme.scheme())), inputs.world_size));
  }
  return strategies;
}

bool holds(const strategy::Strategy& strategy, const cost::CostModel& cost, const SystemInputs& inputs) {
  return std::ranges::any_of(strategy.pipelines, [&](const strategy::Pipeline& pipeline) {
    return cost::MemoryCost(cost, pipeline.scheme).max_len_tokens(inputs.world_size) >= inputs.context_length;
  });
}

std::vector<strategy::Sequence> sequences_of(const std::vector<int64_t>& lengths) {
  std::vector<strategy::Sequence> sequences;
  for (const int64_t length : lengths) sequences.push_back({.length_tokens = length});
  return sequences;
}

// The strategy with the least time over the sample batches, the first of equals.
strategy::Strategy best_single(const std::vector<strategy::Strategy>& strategies,
                               plan::PlannerOptions options, const cost::CostModel& cost,
                               const SystemInputs& inputs) {
  if (strategies.empty()) {
    throw base::InfeasibleError(base::text("no strategy of one scheme on ", inputs.world_size,
                                           " ranks holds context_length ", inputs.context_length,
                                           ": shorten it"));
  }
  std::optional<strategy::Strategy> best;
  int64_t least_ns = std::numeric_limits<int64_t>::max();
  for (const strategy::Strategy& strategy : strategies) {
    options.candidates = {strategy};
    const plan::Planner planner(options, cost);
    int64_t total_ns = 0;
    for (size_t b = 0; b < inputs.sample_batches.size(); ++b) {
      total_ns += planner.plan(static_cast<int64_t>(b), sequences_of(inputs.sample_batches[b])).estimated_ns;
    }
    if (best && total_ns >= least_ns) continue;
    best = strategy;
    least_ns = total_ns;
  }
  return *best;
}

std::unique_ptr<System> make_published(const SystemInputs& inputs, published::TieRule ties,
                                       published::ConstantRule constants) {
  const cost::CostModel cost = one_backward_cell(inputs.cost);
  plan::PlannerOptions options =
      planner_options(inputs, ties, published::PaperPackRule::kBalanced, constants);
  options.candidates = published_strategies(inputs, cost);
  return std::make_unique<Hydraulis>(plan::Planner(std::move(options), cost));
}

}  // namespace

std::unique_ptr<System> make_hydraulis(const SystemInputs& inputs) {
  return make_published(inputs, published::TieRule::kOwnLoad, published::ConstantRule::kReleased);
}

std::unique_ptr<System> make_hydraulis_first(const SystemInputs& inputs) {
  return make_published(inputs, published::TieRule::kFirst, published::ConstantRule::kReleased);
}

std::unique_ptr<System> make_hydraulis_printed(const SystemInputs& inputs) {
  return make_published(inputs, published::TieRule::kOwnLoad, published::ConstantRule::kPrinted);
}

std::unique_ptr<System> make_ablation(const SystemInputs& inputs, AblationStep step) {
  if (step == AblationStep::kDynamic) return make_hydraulis(inputs);
  const cost::CostModel cost = one_backward_cell(inputs.cost);
  plan::PlannerOptions options =
      planner_options(inputs, published::TieRule::kOwnLoad,
                      step == AblationStep::kDispatch ? published::PaperPackRule::kLongest
                                                      : published::PaperPackRule::kBalanced);
  std::vector<strategy::Strategy> strategies;
  if (step == AblationStep::kHeterogeneous) {
    strategies = published_strategies(inputs, cost);
    std::erase_if(strategies, [&](const auto& strategy) { return !holds(strategy, cost, inputs); });
  } else {
    strategies = homogeneous_strategies(inputs, cost);
  }
  options.candidates = {best_single(strategies, options, cost, inputs)};
  return std::make_unique<Hydraulis>(plan::Planner(std::move(options), cost));
}

}  // namespace sluice::study
