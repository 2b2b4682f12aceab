// The ways of planning that are ours: by bounds, and exactly.
#include <algorithm>
#include <limits>
#include <utility>

#include "plan/exact.h"
#include "plan/planner.h"

namespace sluice::plan {
namespace {

using strategy::Sequence;
using strategy::StepPlan;
using strategy::Strategy;

class Ours : public Method {
 public:
  std::optional<StepPlan> plan(const Planner& planner, int64_t step,
                               const std::vector<Sequence>& sequences) const override {
    const PlannerOptions& options = planner.options();
    const SortedBatch batch(strategy::lengths_of(sequences));
    std::vector<CandidateSearch> searches;
    for (const size_t candidate : planner.preference(step)) {
      const Strategy& strategy = options.candidates[candidate];
      if (!batch.sorted.empty() && batch.sorted.front() > planner.max_len_tokens(strategy)) continue;
      CandidateSearch search(strategy, planner.schemes(), planner.cost(), batch);
      if (!search.lower_bound_ns()) continue;
      searches.push_back(std::move(search));
      if (options.selection != Selection::kBest) break;
    }
    if (searches.empty()) return std::nullopt;
    std::stable_sort(
        searches.begin(), searches.end(),
        [](const CandidateSearch& a, const CandidateSearch& b) { return a.expected_ns() < b.expected_ns(); });
    StepPlan plan{.step = step, .sequences = sequences};
    plan.lower_bound_ns = plan.estimated_ns = std::numeric_limits<int64_t>::max();
    for (CandidateSearch& search : searches) {
      if (*search.lower_bound_ns() < plan.estimated_ns) search.raise_bound(plan.estimated_ns);
      const int64_t bound_ns = *search.lower_bound_ns();
      if (bound_ns < plan.lower_bound_ns) {
        plan.lower_bound_ns = bound_ns;
        plan.bounded_by = name_of(search.proof());
      }
      const std::string name = to_text(search.strategy());
      if (bound_ns >= plan.estimated_ns) {
        plan.candidates.push_back({name, bound_ns});
        continue;
      }
      std::vector<PackedPipeline> packed = search.run(plan.estimated_ns, options.effort);
      const int64_t end_ns = last_end_ns(packed);
      plan.candidates.push_back({name, end_ns});
      if (end_ns >= plan.estimated_ns) continue;
      plan.estimated_ns = end_ns;
      plan.pipelines.clear();
      for (PackedPipeline& pipeline : packed) plan.pipelines.push_back(std::move(pipeline.plan));
    }
    return plan;
  }
};

class Exact : public Method {
 public:
  std::optional<StepPlan> plan(const Planner& planner, int64_t step,
                               const std::vector<Sequence>& sequences) const override {
    const PlannerOptions& options = planner.options();
    const std::vector<int64_t> lengths = strategy::lengths_of(sequences);
    std::optional<ExactPlan> best;
    std::vector<strategy::CandidateEstimate> estimates;
    for (const size_t candidate : planner.preference(step)) {
      const Strategy& strategy = options.candidates[candidate];
      std::optional<ExactPlan> next = exact_plan(strategy, planner.schemes(), planner.cost(), lengths);
      if (!next) continue;
      estimates.push_back({to_text(strategy), next->makespan_ns});
      if (!best || next->makespan_ns < best->makespan_ns) best = std::move(next);
      if (options.selection != Selection::kBest) break;
    }
    if (!best) return std::nullopt;
    return StepPlan{.step = step,
                    .sequences = sequences,
                    .pipelines = std::move(best->pipelines),
                    .estimated_ns = best->makespan_ns,
                    .lower_bound_ns = best->makespan_ns,
                    .candidates = std::move(estimates)};
  }
};

}  // namespace

std::shared_ptr<const Method> ours() {
  static const auto method = std::make_shared<const Ours>();
  return method;
}

std::shared_ptr<const Method> exact() {
  static const auto method = std::make_shared<const Exact>();
  return method;
}

}  // namespace sluice::plan
