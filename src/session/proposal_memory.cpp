#include "session/proposal_memory.h"

#include <algorithm>
#include <utility>

#include "graph/build.h"
#include "graph/memory.h"
#include "model/parameters.h"
#include "plan/batch_sample.h"
#include "session/candidates.h"
#include "session/codec_choice.h"

namespace sluice::session {

namespace {

// The batch with the longest sequence that a strategy of `max_len_tokens` holds; null: it holds none.
const std::vector<int64_t>* fullest_batch(const std::vector<std::vector<int64_t>>& batches,
                                          int64_t max_len_tokens) {
  const std::vector<int64_t>* fullest = nullptr;
  int64_t longest = 0;
  for (const std::vector<int64_t>& batch : batches) {
    const int64_t tokens = std::ranges::max(batch);
    if (tokens > max_len_tokens || tokens <= longest) continue;
    fullest = &batch;
    longest = tokens;
  }
  return fullest;
}

}  // namespace

std::vector<int64_t> device_peaks_bytes(const plan::PlannerOptions& options, const cost::CostModel& cost,
                                        std::span<const plan::Proposal> proposals) {
  std::vector<int64_t> peaks(proposals.size(), 0);
  if (proposals.empty() || options.world_size > kMostClockedRanks) return peaks;
  plan::PlannerOptions chosen = plan::for_comparing(options);
  chosen.candidates = plan::strategies_of({proposals.begin(), proposals.end()});
  const plan::Planner all = make_planner(chosen, cost);
  const model::ParameterTable table =
      model::parameter_table(all.cost().options().model, all.cost().program());
  for (size_t i = 0; i < proposals.size(); ++i) {
    const std::vector<int64_t>* batch = fullest_batch(options.sample_batches, proposals[i].max_len_tokens);
    if (batch == nullptr) continue;
    plan::PlannerOptions alone = all.options();
    alone.selection = plan::Selection::kFixed;
    alone.fixed_candidate = static_cast<int>(i);
    const auto plan = plan::Planner(std::move(alone), all.cost()).try_plan(0, plan::sequences_of(*batch));
    if (!plan) continue;
    const graph::StepGraph graph =
        graph::build(*plan, table, all.cost(), options.world_size, {.disabled_passes = {"verify"}});
    for (const graph::RankMemory& rank : graph::predicted_memory(graph, all.cost()))
      peaks[i] = std::max(peaks[i], rank.peak_bytes);
  }
  return peaks;
}

}  // namespace sluice::session
