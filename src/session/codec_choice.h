// In how many bits gradients and parameters should travel: what a proposal advises beside its strategies.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "plan/proposal.h"
#include "session/planning_task.h"

namespace sluice::session {

// Graphs of whole steps are built of so many ranks at most: beyond, advice would take minutes.
inline constexpr int kMostClockedRanks = 8192;

struct CodecChoice {
  std::vector<std::string> settings;  // as a configuration says them: link.push = "bfloat16"
  strategy::WireCodecs codecs;
  strategy::Strategy strategy;  // the proposal's best
  // Its mean step by the clock over a few sample batches: with the codecs, and with numbers as wide as they
  // are.
  int64_t mean_ns = 0;
  int64_t wide_mean_ns = 0;
};

// Tries codecs in the order of what they lose, and takes a later one only where it makes steps shorter by a
// fiftieth than the best before. Nothing where none does, or ranks are too many to build graphs of.
// REQUIRES: proposals of this task.
std::optional<CodecChoice> choose_codecs(const PlanningTask& task, std::span<const plan::Proposal> proposals);

base::Json to_json(const CodecChoice& choice);

}  // namespace sluice::session
