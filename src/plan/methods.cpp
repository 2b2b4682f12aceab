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

// A candidate whose quick plan takes longer than the best by one part in so many is not planned in full.
constexpr int64_t kNear = 16;

struct Best {
  int64_t end_ns = std::numeric_limits<int64_t>::max();
  std::vector<PackedPipeline> pipelines;

  void take(CandidateSearch& search, Effort effort) {
    const std::vector<PackedPipeline>& packed = search.run(effort);
    if (search.end_ns() >= end_ns) return;
    end_ns = search.end_ns();
    pipelines = packed;
  }
};

class Ours : public Method {
 public:
  bool plans_shared_parameters() const override { return true; }
  std::optional<StepPlan> plan(const Planner& planner, int64_t step,
                               const std::vector<Sequence>& sequences) const override {
    const PlannerOptions& options = planner.options();
    const SortedBatch batch(strategy::lengths_of(sequences));
    std::vector<CandidateSearch> searches;
    for (const size_t candidate : planner.preference(step)) {
      const Strategy& strategy = options.candidates[candidate];
      if (!batch.sorted.empty() && batch.sorted.front() > planner.max_len_tokens(strategy)) continue;
      CandidateSearch search(strategy, planner.schemes(), planner.cost(), batch, options.seeds);
      if (!search.lower_bound_ns()) continue;
      searches.push_back(std::move(search));
      if (options.selection != Selection::kBest) break;
    }
    if (searches.empty()) return std::nullopt;
    std::ranges::stable_sort(searches, {}, &CandidateSearch::expected_ns);
    StepPlan plan{.step = step, .sequences = sequences};
    plan.lower_bound_ns = std::numeric_limits<int64_t>::max();
    Best best;
    for (CandidateSearch& search : searches) {
      if (*search.lower_bound_ns() < best.end_ns) search.raise_bound(best.end_ns);
      if (*search.lower_bound_ns() < best.end_ns) best.take(search, Effort::kQuick);
      if (*search.lower_bound_ns() >= plan.lower_bound_ns) continue;
      plan.lower_bound_ns = *search.lower_bound_ns();
      plan.bounded_by = name_of(search.proof());
    }
    if (options.effort == Effort::kFull) {
      std::ranges::stable_sort(searches, {}, &CandidateSearch::known_ns);
      for (CandidateSearch& search : searches) {
        // Quick plans of few sequences are too coarse to give a candidate up by.
        const bool few = sequences.size() <= kFewSequences;
        const bool near = few || search.end_ns() / kNear <= best.end_ns / (kNear - 1);
        if (near && *search.lower_bound_ns() < best.end_ns) best.take(search, Effort::kFull);
      }
    }
    for (const CandidateSearch& search : searches)
      plan.candidates.push_back({to_text(search.strategy()), search.known_ns()});
    plan.estimated_ns = best.end_ns;
    for (PackedPipeline& pipeline : best.pipelines) plan.pipelines.push_back(std::move(pipeline.plan));
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
