// This project's own methods: ours(), with bounds, and plain(), without any search.
#include <algorithm>
#include <utility>

#include "base/never.h"
#include "plan/bins.h"
#include "plan/planner.h"
#include "plan/precision.h"
#include "plan/propose.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::plan {
namespace {

using base::kNever;
using strategy::Sequence;
using strategy::StepPlan;
using strategy::Strategy;

// A candidate's search and the step's time beside its schedule: a lower bound,
// or its plan's value once it is planned. Candidates are compared by the sum.
struct Candidate {
  CandidateSearch search;
  int64_t least_beside_ns = 0;
  int64_t beside_ns = least_beside_ns;

  int64_t lower_bound_ns() const { return *search.lower_bound_ns() + least_beside_ns; }
  int64_t expected_ns() const { return search.expected_ns() + least_beside_ns; }
  int64_t known_ns() const { return search.known_ns() + beside_ns; }
};

struct Best {
  int64_t step_ns = kNever;
  StepPlan plan;  // complete

  // Plans that end at `below_ns` or later are not needed.
  void take(Candidate& candidate, Effort effort, int64_t below_ns, const Planner& planner,
            const std::vector<Sequence>& sequences) {
    const std::vector<PackedPipeline>& packed =
        candidate.search.run(effort, below_ns - candidate.least_beside_ns);
    if (packed.empty() || candidate.search.end_ns() + candidate.least_beside_ns >= step_ns) return;
    StepPlan next = plan_of(sequences, packed, planner.cost());
    candidate.beside_ns = planner.step_overhead_ns(next);
    if (candidate.known_ns() >= step_ns) return;
    step_ns = candidate.known_ns();
    plan = std::move(next);
  }
};

class Ours : public Method {
 public:
  bool plans_fsdp() const override { return true; }
  std::optional<StepPlan> plan(const Planner& planner, int64_t step,
                               const std::vector<Sequence>& sequences) const override {
    const PlannerOptions& options = planner.options();
    const SortedBatch batch(strategy::lengths_of(sequences));
    std::vector<Candidate> candidates;
    for (const size_t candidate : planner.preference(step)) {
      const Strategy& strategy = options.candidates[candidate];
      if (!batch.sorted.empty() && batch.sorted.front() > planner.max_len_tokens(strategy)) continue;
      CandidateSearch search(strategy, planner.schemes(), batch, options.seeds);
      if (!search.lower_bound_ns()) continue;
      candidates.push_back({std::move(search), planner.min_step_overhead_ns(candidate)});
      if (options.selection != Selection::kBest) break;
    }
    if (candidates.empty()) return std::nullopt;
    std::ranges::stable_sort(candidates, {}, &Candidate::expected_ns);
    int64_t lower_bound_ns = kNever;
    Proof proof{};
    Best best;
    for (Candidate& candidate : candidates) {
      CandidateSearch& search = candidate.search;
      if (candidate.lower_bound_ns() < best.step_ns)
        search.raise_bound(best.step_ns - candidate.least_beside_ns);
      if (candidate.lower_bound_ns() < best.step_ns) {
        best.take(candidate, Effort::kQuick, near_ns(best, sequences.size()), planner, sequences);
      }
      if (*search.lower_bound_ns() >= lower_bound_ns) continue;
      lower_bound_ns = *search.lower_bound_ns();
      proof = search.proof();
    }
    if (options.effort == Effort::kFull) plan_near_in_full(candidates, planner, sequences, best);
    StepPlan plan = std::move(best.plan);
    plan.step = step;
    plan.sequences = sequences;
    plan.lower_bound_ns = lower_bound_ns;
    plan.bounded_by = proof;
    for (const Candidate& candidate : candidates)
      plan.candidates.push_back({to_text(candidate.search.strategy()), candidate.known_ns()});
    return plan;
  }

 private:
  // Candidates whose quick plans end by then are planned in full. Quick
  // plans of few sequences are too coarse to exclude any candidate.
  static int64_t near_ns(const Best& best, size_t sequences) {
    const bool any = sequences <= kFewSequences || best.step_ns == kNever;
    return any ? kNever : best.step_ns + best.step_ns / kNearPart;
  }
  static void plan_near_in_full(std::vector<Candidate>& candidates, const Planner& planner,
                                const std::vector<Sequence>& sequences, Best& best) {
    std::ranges::stable_sort(candidates, {}, &Candidate::known_ns);
    for (Candidate& candidate : candidates) {
      const bool planned = candidate.search.end_ns() != kNever;
      if (planned && candidate.known_ns() < near_ns(best, sequences.size()) &&
          candidate.lower_bound_ns() < best.step_ns) {
        best.take(candidate, Effort::kFull, near_ns(best, sequences.size()), planner, sequences);
      }
    }
  }
};

class Plain : public Method {
 public:
  bool plans_lanes() const override { return false; }
  std::optional<StepPlan> plan(const Planner& planner, int64_t step,
                               const std::vector<Sequence>& sequences) const override {
    for (const size_t candidate : planner.preference(step)) {
      StepPlan plan{.step = step, .sequences = sequences};
      if (fill(plan, planner.options().candidates[candidate], planner)) return plan;
    }
    return std::nullopt;
  }

 private:
  static bool fill(StepPlan& plan, const Strategy& strategy, const Planner& planner) {
    std::vector<std::vector<PackItem>> items(strategy.pipelines.size());
    std::vector<int64_t> work_ns(strategy.pipelines.size(), 0);
    const SortedBatch batch(strategy::lengths_of(plan.sequences));
    for (size_t place = 0; place < batch.sorted.size(); ++place) {
      const int64_t length = batch.sorted[place];
      std::optional<size_t> least;
      for (size_t p = 0; p < items.size(); ++p) {
        const SchemeCost& scheme = planner.schemes().of(strategy.pipelines[p]);
        if (scheme.max_len_tokens() >= length && (!least || work_ns[p] < work_ns[*least])) least = p;
      }
      if (!least) return false;
      const int64_t time_ns = planner.schemes().of(strategy.pipelines[*least]).sequence_ns(length);
      items[*least].push_back({batch.sequence_of[place], length, time_ns});
      work_ns[*least] += time_ns;
    }
    for (size_t p = 0; p < items.size(); ++p)
      plan.pipelines.push_back(packed(strategy.pipelines[p], items[p], planner));
    complete(plan, planner.cost());
    for (const strategy::PipelinePlan& pipeline : plan.pipelines) {
      const auto load = schedule::pipeline_load(pipeline, planner.cost(), planner.options().world_size);
      plan.estimated_ns = std::max(plan.estimated_ns, schedule::schedule_pipeline(load).makespan_ns);
    }
    return true;
  }

  static strategy::PipelinePlan packed(const strategy::Pipeline& pipeline, const std::vector<PackItem>& items,
                                       const Planner& planner) {
    const int64_t most = planner.schemes().of(pipeline).max_len_tokens();
    strategy::PipelinePlan plan{.pipeline = pipeline, .max_len_tokens = most, .micro_batches = {}};
    for (const std::vector<int>& bin : first_fit_decreasing(items, most)) {
      strategy::PipelineMicroBatch& micro_batch = plan.micro_batches.emplace_back();
      for (const int item : bin) {
        const PackItem& packed = items[static_cast<size_t>(item)];
        micro_batch.sequences.push_back({packed.sequence, packed.tokens});
      }
    }
    return plan;
  }
};

}  // namespace

base::Feasible<std::vector<Proposal>> Method::propose(const PlannerOptions& options,
                                                      const cost::CostModel& cost) const {
  return plan::propose(options, cost);
}

std::shared_ptr<const Method> ours() {
  static const auto method = std::make_shared<const Ours>();
  return method;
}

std::shared_ptr<const Method> plain() {
  static const auto method = std::make_shared<const Plain>();
  return method;
}

}  // namespace sluice::plan
