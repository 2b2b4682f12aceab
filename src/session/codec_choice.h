// The bits in which gradients and parameters should travel: a proposal's advice beside its strategies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "cost/cost_model.h"
#include "plan/planner_options.h"
#include "session/candidates.h"

namespace sluice::session {

// Graphs of whole steps are built for at most so many ranks: beyond that, advice would take minutes.
inline constexpr int kMostClockedRanks = 8192;

struct CodecChoice {
  std::vector<std::string> settings;  // as in a configuration: link.push = "bfloat16"
  strategy::WireCodecs codecs;
  strategy::Strategy strategy;  // the proposal's best
  // The mean step by the clock over a few sample batches: with the codecs, and with full-width
  // numbers.
  int64_t mean_ns = 0;
  int64_t wide_mean_ns = 0;
};

// Tries codecs in the order of their loss. A later one must make steps shorter than the best before it by a
// fiftieth at least. Nothing if none does, or if ranks are too many to build graphs for.
// REQUIRES: proposals with these options and costs.
std::optional<CodecChoice> choose_codecs(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                         std::span<const plan::Proposal> proposals);
// The same. `planners` may have planners of proposals made with these costs and plan::for_comparing's
// options.
std::optional<CodecChoice> choose_codecs(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                         std::span<const plan::Proposal> proposals,
                                         ComparedPlanners& planners);

base::Json to_json(const CodecChoice& choice);

}  // namespace sluice::session
