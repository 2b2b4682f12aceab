#include "train/straggler_monitor.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "graph/what_if.h"
#include "run/measurements.h"

namespace sluice::train {

using base::text;

namespace {

// Steps for which a rank must be slow, and a membership must
// last, before a rank leaves; then the steps between two checks.
constexpr int64_t kStepsBeforeLeaving = 64;
// Fewer ranks must be faster by one part in kLeavingPart, to recover the cost of a new membership.
constexpr int64_t kLeavingPart = 20;

}  // namespace

StragglerMonitor::StragglerMonitor(run::RunContext& run)
    : run_(run),
      config_(run.config().watch),
      watch_(run.device().pci_bus_id(), run.options().launch.rank - run.options().launch.local_rank),
      planned_paces_(static_cast<size_t>(run.control().world_size()), 100),
      next_question_(kStepsBeforeLeaving) {}

StragglerMonitor::Findings StragglerMonitor::observe(const run::PreparedStep& step,
                                                     const runtime::StepResult& result,
                                                     std::span<const run::RankStatus> words,
                                                     report::StepRecord& record) {
  ++looked_;
  Findings news{.changes = watch_.observe(words, step.graph, record), .leaving_rank = {}};
  const bool begins = std::ranges::any_of(news.changes, &watch::Detector::Change::begins);
  if (config_.critical_path_every > 0 && (begins || (record.step + 1) % config_.critical_path_every == 0)) {
    const run::Measurements measured = run::gather_measurements(run_.control(), step.graph, result.timing);
    if (run_.rank() == 0)
      record.critical_path = run::path_shares(step.graph, run::times_of(step.graph, measured));
  }
  if (config_.on_slow == config::SlowRankAction::kPlan) plan_at_paces(record.step);
  if (config_.on_slow == config::SlowRankAction::kLeave) news.leaving_rank = leaver(step);
  return news;
}

// A slow rank's slowdown causes new plans when it changes by ten points.
// Steps that may have been planned already stay as they are, on all ranks.
void StragglerMonitor::plan_at_paces(int64_t step) {
  constexpr int kWorthPlanning = 10;
  const std::vector<int> paces = watch_.slowdown_percent(run_.control().world_size());
  bool other = false;
  for (size_t rank = 0; rank < paces.size(); ++rank) {
    const bool was_slow = planned_paces_[rank] > 100, is_slow = paces[rank] > 100;
    other = other || was_slow != is_slow || std::abs(paces[rank] - planned_paces_[rank]) >= kWorthPlanning;
  }
  if (!other) return;
  const int64_t from = run::PlanAhead::first_unplanned(step);
  run_.planning().step_planners().slow_from(from, paces);
  planned_paces_ = paces;
  if (run_.rank() != 0) return;
  std::vector<std::string> slow;
  for (size_t rank = 0; rank < paces.size(); ++rank) {
    if (paces[rank] > 100) slow.push_back(text("rank ", rank, " takes ", paces[rank], " %"));
  }
  base::log_info(text("from step ", from, " on plans count with ",
                      slow.empty() ? "ranks that are alike again" : base::join(slow, ", ")));
}

std::optional<int> StragglerMonitor::leaver(const run::PreparedStep& step) {
  constexpr int kFewestRanks = 3;  // with fewer, no majority would be left
  if (run_.snapshot_replicas() == nullptr || run_.control().world_size() < kFewestRanks ||
      looked_ < next_question_)
    return std::nullopt;
  const std::optional<watch::Alarm> slowest = watch_.slowest();
  if (!slowest || step.plan.step - slowest->since < kStepsBeforeLeaving) return std::nullopt;
  next_question_ = looked_ + kStepsBeforeLeaving;
  if (!fewer_are_faster(step, slowest->rank)) return std::nullopt;
  return slowest->rank;
}

// Compares by the clock: this step at all current slowdowns, and the others' plan of the same batch.
bool StragglerMonitor::fewer_are_faster(const run::PreparedStep& step, int without) const {
  const int fewer = run_.control().world_size() - 1;
  const int64_t as_it_is_ns = graph::makespan_at(step.graph, watch_.slowdowns());
  const std::string who = text("rank ", without, " is slow; steps like this one take ",
                               base::human_duration(as_it_is_ns), " by their plan");
  const base::Feasible<graph::StepGraph> planned = run_.planning().step_of_fewer(fewer, step.plan.sequences);
  const bool faster = planned && planned->makespan_ns < as_it_is_ns - as_it_is_ns / kLeavingPart;
  if (run_.rank() != 0) return faster;
  if (!planned) {
    base::log_info(text(who, "; it stays, for ", fewer, " ranks cannot do without it: ", planned.none().why));
  } else {
    base::log_info(text(who, ", ", base::human_duration(planned->makespan_ns), " on ", fewer, " ranks: it ",
                        faster ? "leaves" : "stays"));
  }
  return faster;
}

}  // namespace sluice::train
