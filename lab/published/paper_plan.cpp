#include "published/paper_plan.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "published/paper_propose.h"
#include "schedule/pipeline_schedule.h"

namespace sluice::published {
namespace {

std::optional<Dispatch> dispatch_by_paper(std::span<const int64_t> lengths,
                                          std::span<const plan::SchemeCost* const> schemes,
                                          const PaperOptions& options) {
  if (options.dispatch_rule == DispatchRule::kGreedy) return dispatch(lengths, schemes, options.dispatch);
  std::optional<IdealDispatch> ideal =
      ideal_dispatch(lengths, schemes, options.dispatch, options.ideal_node_budget);
  if (!ideal) return std::nullopt;
  return std::move(ideal->best);
}

// `members`: indices of the pipeline's sequences.
strategy::PipelinePlan pipeline_plan(const strategy::Pipeline& pipeline, const plan::SchemeCost& scheme,
                                     const PaperPacking& packing, std::span<const int> members,
                                     std::span<const int64_t> lengths) {
  strategy::PipelinePlan plan{
      .pipeline = pipeline, .max_len_tokens = scheme.max_len_tokens(), .micro_batches = {}};
  for (const std::vector<int>& indices : packing.micro_batches) {
    strategy::PipelineMicroBatch& micro_batch = plan.micro_batches.emplace_back();
    for (const int index : indices) {
      const int sequence = members[static_cast<size_t>(index)];
      micro_batch.sequences.push_back({sequence, lengths[static_cast<size_t>(index)]});
    }
  }
  return plan;
}

int64_t makespan_ns(const strategy::PipelinePlan& plan, const plan::SchemeCost& scheme,
                    const cost::CostModel& cost) {
  const schedule::PipelineLoad load{.stages = scheme.scheme().pp,
                                    .lanes = 1,
                                    .credit_tokens = scheme.credit_tokens(),
                                    .micro_batches = schedule::timed_micro_batches(plan, cost)};
  return schedule::schedule_pipeline(load).makespan_ns;
}

}  // namespace

std::optional<PaperPlan> plan_by_paper(const strategy::Strategy& strategy, const plan::SchemeCosts& schemes,
                                       const cost::CostModel& cost, std::span<const int64_t> lengths,
                                       const PaperOptions& options) {
  std::vector<const plan::SchemeCost*> scheme_of;
  for (const strategy::Pipeline& pipeline : strategy.pipelines) {
    if (pipeline.scheme.cp != 1) {
      throw base::InputError(base::text("strategy '", to_text(strategy), "': the published planning knows ",
                                        "no cp > 1: plan with method ours or leave it out"));
    }
    scheme_of.push_back(&schemes.of(pipeline));
  }
  const std::optional<Dispatch> dispatched = dispatch_by_paper(lengths, scheme_of, options);
  if (!dispatched) return std::nullopt;
  std::vector<std::vector<int>> members(strategy.pipelines.size());
  for (size_t s = 0; s < lengths.size(); ++s) {
    members[static_cast<size_t>(dispatched->pipeline_of[s])].push_back(static_cast<int>(s));
  }
  PaperPlan plan;
  for (size_t p = 0; p < members.size(); ++p) {
    std::vector<int64_t> own;
    for (const int sequence : members[p]) own.push_back(lengths[static_cast<size_t>(sequence)]);
    const PaperPacking packing = pack_by_paper(own, *scheme_of[p], options.pack);
    plan.pipelines.push_back(pipeline_plan(strategy.pipelines[p], *scheme_of[p], packing, members[p], own));
    plan.published_ns = std::max(plan.published_ns, packing.estimated_ns);
    plan.makespan_ns = std::max(plan.makespan_ns, makespan_ns(plan.pipelines.back(), *scheme_of[p], cost));
    plan.proved = plan.proved && packing.proved;
  }
  return plan;
}

namespace {

class Paper : public plan::Method {
 public:
  explicit Paper(PaperOptions options) : options_(std::move(options)) {}

  bool plans_lanes() const override { return false; }
  base::Feasible<std::vector<plan::Proposal>> propose(const plan::PlannerOptions& options,
                                                      const cost::CostModel& cost) const override {
    return paper_propose(options, cost);
  }

  std::optional<strategy::StepPlan> plan(const plan::Planner& planner, int64_t step,
                                         const std::vector<strategy::Sequence>& sequences) const override {
    const std::vector<int64_t> lengths = strategy::lengths_of(sequences);
    const std::vector<strategy::Strategy>& candidates = planner.options().candidates;
    std::optional<PaperPlan> best;
    std::vector<strategy::CandidateEstimate> estimates;
    for (const size_t candidate : planner.preference(step)) {
      PaperOptions options = options_;
      options.dispatch.stream = static_cast<uint64_t>(step) * candidates.size() + candidate;
      std::optional<PaperPlan> next =
          plan_by_paper(candidates[candidate], planner.schemes(), planner.cost(), lengths, options);
      if (!next) continue;
      estimates.push_back({to_text(candidates[candidate]), next->makespan_ns});
      if (!best || next->published_ns < best->published_ns) best = std::move(next);
      if (planner.options().selection != plan::Selection::kBest) break;
    }
    if (!best) return std::nullopt;
    return strategy::StepPlan{.step = step,
                              .sequences = sequences,
                              .pipelines = std::move(best->pipelines),
                              .estimated_ns = best->makespan_ns,
                              .candidates = std::move(estimates)};
  }

 private:
  PaperOptions options_;
};

}  // namespace

std::shared_ptr<const plan::Method> paper(PaperOptions options) {
  return std::make_shared<const Paper>(std::move(options));
}

}  // namespace sluice::published
